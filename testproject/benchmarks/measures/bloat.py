"""What a forgotten transaction costs: it holds an old snapshot, so that no dead row or index entry can go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.measures.draining import drain, nothing_beside
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 300_000
Beside = Callable[[str], contextlib.AbstractContextManager[None]]


def measure(bench: Bench) -> list[Comparison]:
    """Compare the rate over the last tenth of the jobs, with and without such a transaction."""
    return [_compare(bench, each) for each in [bench.ours, *(each for each in bench.peers if each.left)]]


def _compare(bench: Bench, contestant: Contestant) -> Comparison:
    jobs = bench.jobs_for(contestant, JOBS)
    filled = bench.filled(contestant, jobs)

    @contextlib.contextmanager
    def old_snapshot(database: str) -> Iterator[None]:
        with bench.arena.server.connect(database) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM pg_class")
            yield

    without, held = contestant.name, f"{contestant.name} under an old snapshot"
    kinds: dict[str, Beside] = {without: nothing_beside, held: old_snapshot}
    runs = by_turns(
        bench.rounds,
        {name: partial(_run, bench, contestant, filled, jobs, beside) for name, beside in kinds.items()},
        bench.say,
    )
    bench.arena.forget(filled)
    return Comparison(
        measure=f"rate at the end of {jobs:,} jobs",
        unit="jobs/s",
        runs=runs,
        ratios={f"{held} / without": ratios(runs, held, without)},
        goal="at least 0.60",
    )


def _run(bench: Bench, contestant: Contestant, filled: str, jobs: int, beside: Beside) -> Run:
    run = drain(bench, contestant, filled, jobs, beside=beside)
    return Run(value=run.details["rate_at_the_end"], details={**run.details, "rate_of_all": run.value})
