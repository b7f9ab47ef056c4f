"""How long a one-time password waits while reports fill every other thread."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

from testproject.benchmarks.arena import Failed
from testproject.benchmarks.bench import Bench
from testproject.benchmarks.measures.latency import quantile
from testproject.benchmarks.peers import marks
from testproject.benchmarks.rounds import Comparison, Run, by_turns

JOBS = 500
GAP = 0.05
REPORT_SECONDS = 2.0
REPORTS = 400  # more than get done meanwhile
REPORTS_AT_ONCE = 8
SETTLE_SECONDS = 3.0
RUNNING = "SELECT count(*) FROM django_reliable_jobs_job WHERE status = 'RUNNING'"

# The recipe, and what it is better than.
RECIPE = "a worker of its own"
IN_ORDER = "one worker, otp first"
WORKERS = {
    RECIPE: (("--queue=otp", "--threads=4"), ("--except=otp", "--threads=8")),
    IN_ORDER: (("--queue=otp", "--queue=reports", "--threads=8"),),
}


def measure(bench: Bench) -> list[Comparison]:
    """Enqueue passwords one after another beside reports; the 99th percentile of start - return of the enqueue call."""
    runs = by_turns(bench.rounds, {name: partial(_run, bench, WORKERS[name]) for name in WORKERS}, bench.say)
    return [
        Comparison(
            measure="a one-time password beside reports that compute, p99",
            unit="ms",
            runs=runs,
            goal=f"{RECIPE}: under 50 ms",
        )
    ]


def _run(bench: Bench, workers: tuple[tuple[str, ...], ...]) -> Run:
    database, jobs, arena = "ours_run", bench.jobs or JOBS, bench.arena
    arena.server.create(database, arena.tables(bench.ours))
    arena.call(bench.ours, database, "reports", REPORTS, bench.seconds or REPORT_SECONDS)
    with ExitStack() as stack:
        quick, *_ = running = [
            stack.enter_context(arena.worker(bench.ours, database, options=options)) for options in workers
        ]
        if not quick.wait_until(
            lambda: arena.server.value(database, RUNNING) >= REPORTS_AT_ONCE, seconds=60, pause=0.1
        ):
            raise Failed("the reports do not fill their threads")
        time.sleep(SETTLE_SECONDS)
        busy = arena.server.value(database, RUNNING)
        arena.call(bench.ours, database, "passwords", jobs, GAP, marks_in=quick.marks)
        all_started = quick.wait_until(lambda: len(marks.stamps(quick.marks, "started")) >= jobs, seconds=60)
        usage = sum(each.usage().worker for each in running)
        enqueued, started = (marks.stamps(quick.marks, name) for name in ("enqueued", "started"))
    if not all_started:
        raise Failed(f"{len(started)} of {jobs} passwords started")
    waits = sorted(1000 * (started[number] - enqueued[number]) for number in enqueued)
    details = {"p50": quantile(waits, 0.5), "p90": quantile(waits, 0.9), "most": waits[-1]}
    return Run(value=quantile(waits, 0.99), details={**details, "reports_running": busy, "worker_seconds": usage})
