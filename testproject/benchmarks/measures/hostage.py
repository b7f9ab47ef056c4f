"""Whether a long job holds short ones up that share its worker."""

from __future__ import annotations

from functools import partial

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.measures.draining import drain
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 10_000
NAP_SECONDS = 60
# First in the line: the short jobs come after it.
NAP = """
INSERT INTO django_reliable_jobs_job (task, kwargs, created_at, run_after, max_attempts)
VALUES ('benchmark.nap', '{"seconds": {seconds}}', now(), now(), 5)
"""


def measure(bench: Bench) -> list[Comparison]:
    """Compare how long the short jobs take with and without a long job that starts before them."""
    jobs, nap = bench.jobs or JOBS, bench.seconds or NAP_SECONDS
    filled = {
        "ours": bench.filled(bench.ours, jobs),
        "ours with a long job": bench.filled(bench.ours, jobs, label="nap", sql=(NAP,), seconds=nap),
    }
    runs = by_turns(
        bench.rounds, {name: partial(_run, bench, database, jobs) for name, database in filled.items()}, bench.say
    )
    return [
        Comparison(
            measure=f"seconds for {jobs:,} short jobs beside one of {nap:g} s",
            unit="s",
            runs=runs,
            ratios={"with / without": ratios(runs, "ours with a long job", "ours")},
            goal="at most 1.2",
        )
    ]


def _run(bench: Bench, filled: str, jobs: int) -> Run:
    run = drain(bench, bench.ours, filled, jobs)
    return Run(value=run.details["seconds"], details=run.details)
