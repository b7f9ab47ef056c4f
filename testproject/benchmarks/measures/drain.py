"""How many jobs a second, beside each peer."""

from __future__ import annotations

from functools import partial

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.measures.draining import drain
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 60_000
GOALS = {
    "pgqueuer": "at least 1.4",
    "oban": "at least 4",
    "celery": "at least 10",
    "celery-threads": "at least 10",
    "procrastinate": "at least 20",
    "django-tasks-db": "at least 40",
    "raw-sql": "at least 0.60",
    "raw-sql-unprepared": "at least 0.60",
}


def measure(bench: Bench) -> list[Comparison]:
    """Drain the same table by turns with each contestant's own worker."""
    return [_compare(bench, peer) for peer in bench.peers] or [_compare(bench, None)]


def _compare(bench: Bench, peer: Contestant | None) -> Comparison:
    contestants = [bench.ours] if peer is None else [bench.ours, peer]
    runs = by_turns(bench.rounds, {each.name: partial(_run, bench, each) for each in contestants}, bench.say)
    return Comparison(
        measure=f"drain, {bench.processes} process{'es' if bench.processes > 1 else ''}",
        unit="jobs/s",
        runs=runs,
        ratios={} if peer is None else {f"ours / {peer.name}": ratios(runs, "ours", peer.name)},
        goal="" if peer is None else GOALS.get(peer.name, ""),
    )


def _run(bench: Bench, contestant: Contestant) -> Run:
    jobs = bench.jobs_for(contestant, JOBS)
    filled = "" if contestant.needs_redis else bench.filled(contestant, jobs)
    return drain(bench, contestant, filled, jobs, processes=bench.processes)
