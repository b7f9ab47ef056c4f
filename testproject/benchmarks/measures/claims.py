"""Whether a claim of limited jobs takes longer the more keys have jobs that wait."""

from __future__ import annotations

from functools import partial
from typing import Any

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.measures.latency import quantile
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 100_000
CLAIMS = 400
SHAPES = {"10 keys": (10, 0), "10,000 keys": (10_000, 0), "10,000 keys, 9,900 of them at their limit": (10_000, 9_900)}

LIMIT = """
INSERT INTO django_reliable_jobs_limit (kind, name, allowed) VALUES ('concurrency', 'crm', 8)
"""
WAITING = """
INSERT INTO django_reliable_jobs_job (task, kwargs, status, created_at, run_after, concurrency_key)
SELECT 'benchmark.noop', '{"number": 1, "note": ""}', 'READY', now(), now(), 'crm:customer_id=' || number % {keys}
  FROM generate_series(1, {jobs}) AS given(number)
"""
# Eight hold every place of a key.
BUSY = """
INSERT INTO django_reliable_jobs_job (task, kwargs, status, created_at, run_after, concurrency_key, attempt, claims,
                                      token, worker_id, first_started_at, started_at)
SELECT 'benchmark.noop', '{}', 'RUNNING', now(), now(), 'crm:customer_id=' || number % {busy}, 1, 1, number, 0,
       now(), now()
  FROM generate_series(1, 8 * {busy}) AS given(number)
"""


def measure(bench: Bench) -> list[Comparison]:
    """Claim for eight threads, by turns from few keys and from many with as many jobs; the median, in milliseconds."""
    databases = {name: _filled(bench, *shape) for name, shape in SHAPES.items()}
    runs = by_turns(bench.rounds, {name: partial(_run, bench, databases[name]) for name in SHAPES}, bench.say)
    few, *others = SHAPES
    return [
        Comparison(
            measure=f"a claim of limited jobs, {bench.jobs or JOBS:,} waiting",
            unit="ms",
            runs=runs,
            ratios={f"{name} / {few}": ratios(runs, name, few) for name in others},
            goal="flat: 10,000 keys cost what 10 cost",
        )
    ]


def _filled(bench: Bench, keys: int, busy: int) -> str:
    def fill(database: str) -> None:
        for statement in (LIMIT, WAITING, *((BUSY,) if busy else ())):
            for name, value in {"keys": keys, "busy": busy, "jobs": bench.jobs or JOBS}.items():
                statement = statement.replace(f"{{{name}}}", str(value))
            bench.arena.server.execute(database, statement)

    return bench.arena.prepared(bench.ours, f"keys_{keys}_{busy}", fill)


def _run(bench: Bench, filled: str) -> Run:
    bench.arena.server.create("ours_run", filled)
    answer: dict[str, Any] = bench.arena.call(bench.ours, "ours_run", "claims", CLAIMS)
    waits = answer["milliseconds"]
    bench.arena.server.drop("ours_run")
    return Run(value=quantile(waits, 0.5), details={"p99": quantile(waits, 0.99), "most": waits[-1]})
