"""How long from the start of a worker process to its first job, and how much memory it takes when idle."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

from testproject.benchmarks.arena import CHECKOUT, Failed
from testproject.benchmarks.bench import Bench
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios
from testproject.benchmarks.usage import resident_of

SETTLE_SECONDS = 4.0
# Loads what an interactive shell has: the settings, the apps, their models.
READY = "print('ready', flush=True); input()"


def measure(bench: Bench) -> list[Comparison]:
    """Start `manage.py runworker` and `manage.py shell` by turns, with the same settings."""
    start = by_turns(bench.rounds, {"ours": lambda: _first_job(bench), "shell": lambda: _shell(bench)}, bench.say)
    memory = {
        name: [Run(value=each.details["resident_mib"], details=each.details) for each in runs]
        for name, runs in start.items()
    }
    more = [one.value - other.value for one, other in zip(memory["ours"], memory["shell"], strict=True)]
    return [
        Comparison(
            measure="from the start of the process to the first job (of the shell: to its prompt)",
            unit="s",
            runs=start,
            ratios={"ours / shell": ratios(start, "ours", "shell")},
            goal="under 1.5 s",
        ),
        Comparison(
            measure="memory of the idle process",
            unit="MiB",
            runs=memory,
            ratios={"ours - shell, MiB": more},
            goal="at most 40 MiB more than manage.py shell",
        ),
    ]


def _first_job(bench: Bench) -> Run:
    database = "startup_run"
    bench.arena.server.create(database, bench.filled(bench.ours, 1))
    with bench.arena.worker(bench.ours, database) as worker:
        if not worker.wait_until(lambda: worker.count()[1], seconds=30, pause=0.001):
            raise Failed("the worker started no job")
        seconds = (worker.count()[1] or 0) - worker.started_at
        time.sleep(SETTLE_SECONDS)
        return Run(value=seconds, details={"resident_mib": resident_of(worker.family) / 2**20})


def _shell(bench: Bench) -> Run:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "testproject.benchmarks.settings",
        "DATABASE_URL": bench.arena.server.url("startup_run"),
    }
    start = time.time()
    shell = subprocess.Popen(
        [sys.executable, "manage.py", "shell", "-c", READY],
        cwd=CHECKOUT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with shell:
        assert shell.stdout is not None  # noqa: S101 - it is a pipe
        while "ready" not in (line := shell.stdout.readline()):
            if not line:
                raise Failed("manage.py shell did not start")
        seconds = time.time() - start
        resident = resident_of([psutil.Process(shell.pid)])
        shell.terminate()
    return Run(value=seconds, details={"resident_mib": resident / 2**20})
