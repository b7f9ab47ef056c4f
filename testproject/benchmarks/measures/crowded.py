"""A drain beside many rows that are no work, against the same drain on a table that holds nothing else."""

from __future__ import annotations

from functools import partial

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.measures.draining import drain
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 40_000


def compare(
    bench: Bench, contestant: Contestant, what: str, statements: tuple[str, ...], *, rows: int, goal: str
) -> Comparison:
    """Drain by turns with and without the rows that the statements make."""
    jobs = bench.jobs_for(contestant, JOBS)
    empty, crowded = contestant.name, f"{contestant.name} beside {rows:,} {what}"
    databases = {
        empty: bench.filled(contestant, jobs),
        crowded: bench.filled(contestant, jobs, label=f"{what}_{rows}".replace(" ", "_"), sql=statements, rows=rows),
    }
    runs = by_turns(
        bench.rounds, {name: partial(_run, bench, contestant, databases[name], jobs) for name in databases}, bench.say
    )
    bench.arena.forget(databases[crowded])
    return Comparison(
        measure=f"drain beside {rows:,} {what}",
        unit="jobs/s",
        runs=runs,
        ratios={f"{crowded} / empty": ratios(runs, crowded, empty)},
        goal=goal,
    )


def _run(bench: Bench, contestant: Contestant, filled: str, jobs: int) -> Run:
    return drain(bench, contestant, filled, jobs)
