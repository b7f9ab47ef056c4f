"""What jobs cost that can't run: a drain beside a million scheduled ones, and beside 100,000 of a paused queue."""

from __future__ import annotations

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.measures.crowded import compare
from testproject.benchmarks.rounds import Comparison

ROWS = 1_000_000
PAUSED = (
    "INSERT INTO django_reliable_jobs_queue (name, paused_at) VALUES ('held', now())",
    """INSERT INTO django_reliable_jobs_job (task, kwargs, queue_name, status, created_at, run_after)
       SELECT 'benchmark.noop', jsonb_build_object('number', number, 'note', ''), 'held', 'READY', now(), now()
         FROM generate_series(1, {rows}) AS given(number)""",
)


def measure(bench: Bench) -> list[Comparison]:
    """Compare with the empty table: us, and the peers that have a table."""
    rows = bench.rows or ROWS
    scheduled = [
        compare(bench, each, "scheduled jobs", each.future, rows=rows, goal="at least 0.90")
        for each in [bench.ours, *bench.peers]
        if each.future
    ]
    paused = compare(bench, bench.ours, "jobs of a paused queue", PAUSED, rows=rows // 10, goal="at least 0.90")
    return [*scheduled, paused]
