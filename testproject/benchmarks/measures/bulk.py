"""How many jobs a second one caller enqueues in one transaction."""

from __future__ import annotations

from functools import partial

from testproject.benchmarks.bench import FEWER, Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios
from testproject.benchmarks.usage import seconds_of_family

JOBS = 100_000


def measure(bench: Bench) -> list[Comparison]:
    """Enqueue many at once, by turns."""
    contestants = [bench.ours, *bench.peers]
    runs = by_turns(bench.rounds, {each.name: partial(_run, bench, each) for each in contestants}, bench.say)
    return [
        Comparison(
            measure="bulk enqueue in one transaction",
            unit="jobs/s",
            runs=runs,
            ratios={f"ours / {peer.name}": ratios(runs, "ours", peer.name) for peer in bench.peers},
            goal="at least 0.70 of raw-sql, 2 of pgqueuer",
        )
    ]


def _run(bench: Bench, contestant: Contestant) -> Run:
    database = f"{contestant.driver}_run"
    jobs = bench.jobs or (10_000 if contestant.name in FEWER else JOBS)
    if not contestant.needs_redis:
        bench.arena.server.create(database, bench.arena.tables(contestant))
    server = bench.arena.server.process
    before = seconds_of_family(server)
    answer = bench.arena.call(contestant, database, "bulk", jobs)
    answer["postgres_us_per_job"] = (seconds_of_family(server) - before) * 1e6 / answer["jobs"]
    return Run(value=answer["jobs"] / answer["seconds"], details=answer)
