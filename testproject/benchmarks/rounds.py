"""Turns: A B A B, so that what slows the machine for a while slows every contestant alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one contestant: the figure that is compared, and what else was seen."""

    value: float
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Spread:
    """The middle of several runs, and their extremes."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Return the spread of these values."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One question: the runs of each contestant by label, and each ratio of two of them, round by round."""

    measure: str
    unit: str
    runs: dict[str, list[Run]]
    ratios: dict[str, list[float]] = field(default_factory=dict)
    goal: str = ""
    note: str = ""

    def spread(self, label: str) -> Spread:
        """Return the spread of a contestant's values."""
        return Spread.of([each.value for each in self.runs[label]])

    def as_json(self) -> dict[str, Any]:
        """Return all of it, as JSON has it."""
        return {
            **asdict(self),
            "spreads": {label: asdict(self.spread(label)) for label in self.runs},
            "ratio_spreads": {name: asdict(Spread.of(each)) for name, each in self.ratios.items()},
        }


def by_turns(
    rounds: int, contestants: Mapping[str, Callable[[], Run]], say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Run all contestants, one after another, so many times."""
    runs: dict[str, list[Run]] = {label: [] for label in contestants}
    for number in range(rounds):
        for label, run in contestants.items():
            runs[label].append(run())
            say(f"   round {number + 1}: {label} {runs[label][-1].value:,.5g}")
    return runs


def ratios(runs: Mapping[str, list[Run]], first: str, second: str) -> list[float]:
    """Return first / second in each round."""
    return [one.value / other.value for one, other in zip(runs[first], runs[second], strict=True)]
