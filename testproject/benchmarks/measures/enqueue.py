"""How many jobs a second one caller enqueues, each in a transaction of its own."""

from __future__ import annotations

from functools import partial

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios
from testproject.benchmarks.usage import seconds_of_family

SECONDS = 3.0


def measure(bench: Bench) -> list[Comparison]:
    """Enqueue for a while, by turns."""
    contestants = [bench.ours, *bench.peers]
    runs = by_turns(bench.rounds, {each.name: partial(_run, bench, each) for each in contestants}, bench.say)
    return [
        Comparison(
            measure="enqueue, one per transaction",
            unit="jobs/s",
            runs=runs,
            ratios={f"ours / {peer.name}": ratios(runs, "ours", peer.name) for peer in bench.peers},
            goal="at least 0.85 of raw-sql-same",
        )
    ]


def _run(bench: Bench, contestant: Contestant) -> Run:
    database = f"{contestant.driver}_run"
    if not contestant.needs_redis:
        bench.arena.server.create(database, bench.arena.tables(contestant))
    server = bench.arena.server.process
    before = seconds_of_family(server)
    answer = bench.arena.call(contestant, database, "enqueue", bench.seconds or SECONDS)
    answer["postgres_us_per_job"] = (seconds_of_family(server) - before) * 1e6 / answer["jobs"]
    return Run(value=answer["jobs"] / answer["seconds"], details=answer)
