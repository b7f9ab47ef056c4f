"""Whether the pages of the admin hold at a million ended jobs: each filter alone, rare values included."""

from __future__ import annotations

from typing import Any

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.rounds import Comparison, Run

ROWS = 1_000_000
GOAL_MS = 150
TURNS = 5


def measure(bench: Bench) -> list[Comparison]:
    """Ask for each page some times in each round; its value is the median, in milliseconds."""
    rows = bench.rows or ROWS
    return [_compare(bench, rows, max(rows // 40, 20)), _compare(bench, max(rows // 10, 100), rows)]


def _compare(bench: Bench, ended: int, live: int) -> Comparison:
    filled = bench.arena.prepared(
        bench.ours, f"admin_{ended}_{live}", lambda name: bench.arena.call(bench.ours, name, "admin_rows", ended, live)
    )
    answers = [_ask(bench, filled) for _ in range(bench.rounds)]
    bench.arena.forget(filled)
    runs = {name: [_run(answer[name]) for answer in answers] for name in answers[0]}
    return Comparison(
        measure=f"pages of the admin, {ended:,} ended jobs and {live:,} live ones",
        unit="ms",
        runs=runs,
        goal=f"under {GOAL_MS} ms",
        note=", ".join(name for name, each in runs.items() if min(run.value for run in each) >= GOAL_MS),
    )


def _ask(bench: Bench, filled: str) -> dict[str, Any]:
    bench.arena.server.create("ours_run", filled)
    answer: dict[str, Any] = bench.arena.call(bench.ours, "ours_run", "admin_pages", TURNS)
    bench.arena.server.drop("ours_run")
    return answer


def _run(page: dict[str, Any]) -> Run:
    took = page["milliseconds"]
    details = {"most": took[-1], "statements": page["statements"], "listed": page["listed"]}
    return Run(value=took[len(took) // 2], details=details)
