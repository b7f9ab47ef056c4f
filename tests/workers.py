"""Real worker processes, to be killed for real."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from django.db import connections

from django_reliable_jobs.models import Worker
from tests.actors import wait_for

CHECKOUT = Path(__file__).resolve().parent.parent


class WorkerProcess:
    """`manage.py runworker`, or another command, on the database of the running test that `using` names.

    `before` are words before the command: a program that runs it in another world.
    """

    def __init__(
        self,
        *arguments: str,
        settings: dict[str, Any] | None = None,
        ready: bool = True,
        using: str = "default",
        environment: dict[str, str] | None = None,
        command: str = "runworker",
        before: Sequence[str] = (),
    ) -> None:
        self._using = using
        database = connections[using].settings_dict
        self._output = tempfile.NamedTemporaryFile("w")  # noqa: SIM115 - closed by kill()
        self.process = subprocess.Popen(
            [*before, sys.executable, "-W", "error::ResourceWarning", "manage.py", command, *arguments],
            cwd=CHECKOUT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "TESTS_DATABASE_NAME": database["NAME"],
                "TESTS_DATABASE_HOST": database["HOST"],
                "TESTS_DATABASE_PORT": str(database["PORT"]),
                "TESTS_RELIABLE_JOBS": json.dumps(settings or {}),
                "LOG_LEVEL": "INFO",
                **(environment or {}),
            },
            stdout=self._output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        if ready:
            try:
                wait_for(lambda: self.row or self.has_ended, timeout=120, what="the worker to register")
            except BaseException:
                self.kill()  # nobody else knows of it: it would take the jobs of the tests that follow
                raise

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def row(self) -> Worker | None:
        return Worker.objects.using(self._using).filter(pid=self.pid, lost_at=None).first()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def output(self) -> str:
        return Path(self._output.name).read_text()  # opened anew: the processes share the position of their file

    def send_to_group(self, number: signal.Signals) -> None:
        """Send a signal to every process of the group, as a terminal does at Ctrl-C."""
        os.killpg(self.pid, number)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 120) -> int:
        """Return the exit code; fail with the worker's output if it does not end."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            output = self.output
            self.kill()
            raise AssertionError(f"the worker did not end within {timeout} s:\n{output}") from None

    def kill(self) -> None:
        """End it as a power cut would."""
        family = psutil.Process(self.pid).children(recursive=True) if not self.has_ended else []
        self.process.kill()
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(family)
        self.process.wait()
        self._output.close()
