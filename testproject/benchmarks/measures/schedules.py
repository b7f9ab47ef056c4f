"""A thousand schedules of a hundred thousand that are due at once, and what one next run costs to compute."""

from __future__ import annotations

from typing import Any

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.rounds import Comparison, Run, by_turns

ROWS = 100_000
DUE = 1000


def measure(bench: Bench) -> list[Comparison]:
    """Tick until nothing is due; then compute next runs from moments spread over twenty years."""
    total, due = bench.rows or ROWS, min(bench.jobs or DUE, bench.rows or ROWS)
    filled = bench.arena.prepared(
        bench.ours, f"schedules_{total}", lambda name: bench.arena.call(bench.ours, name, "schedules", total, due)
    )
    ticks = by_turns(bench.rounds, {"ours": lambda: _tick(bench, filled, due)}, bench.say)
    at_once = f"{due:,} of {total:,} schedules due at once"
    return [Comparison(measure=at_once, unit="s", runs=ticks, goal="under 2 s"), *_next_runs(bench)]


def _tick(bench: Bench, filled: str, due: int) -> Run:
    bench.arena.server.create("ours_run", filled)
    answer: dict[str, Any] = bench.arena.call(bench.ours, "ours_run", "tick")
    bench.arena.server.drop("ours_run")
    assert answer["jobs"] == due  # noqa: S101 - else it is the time of something else
    return Run(value=answer["seconds"], details=answer)


def _next_runs(bench: Bench) -> list[Comparison]:
    # Each round in a process of its own, where nothing is known yet of any year.
    answers = [bench.arena.call(bench.ours, "postgres", "next_runs") for _ in range(bench.rounds)]
    return [
        Comparison(
            measure=f"one next run, {kind} recurrences",
            unit="us",
            runs={
                name: [
                    Run(value=each[kind][name]["us"], details={"first_us": each[kind][name]["first_us"]})
                    for each in answers
                ]
                for name in answers[0][kind]
            },
            goal=f"under {most} us",
        )
        for kind, most in (("common", "1,000"), ("sparse", "10,000"))
    ]
