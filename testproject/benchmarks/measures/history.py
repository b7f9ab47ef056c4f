"""What a long history costs: a drain beside a million finished jobs."""

from __future__ import annotations

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.measures.crowded import compare
from testproject.benchmarks.rounds import Comparison

ROWS = 1_000_000


def measure(bench: Bench) -> list[Comparison]:
    """Compare with the empty table: us, and the peers that have a table."""
    return [
        compare(bench, each, "finished jobs", each.finished, rows=bench.rows or ROWS, goal="at least 0.90")
        for each in [bench.ours, *bench.peers]
        if each.finished
    ]
