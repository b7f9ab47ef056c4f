"""Which runs a clock change touches, and what becomes of them, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from django_reliable_jobs.recurrence.clock_changes import ClockChange, changes_between, load_zone
from django_reliable_jobs.recurrence.fires import Plan
from django_reliable_jobs.recurrence.moments import clock_time, long_date
from django_reliable_jobs.recurrence.wall_times import MINUTE, first_wall_from


@dataclass(frozen=True, slots=True)
class ClockChangeNote:
    """A run whose wall time a clock change skips (`gap`) or repeats (`fold`).

    `local_time` is that wall time (naive); `rule` what decides; `runs_at` the UTC instants at which
    it runs, empty if it doesn't; `changes_at` the UTC instant of the change.
    """

    local_time: datetime
    timezone: str
    kind: Literal["gap", "fold"]
    rule: str
    runs_at: tuple[datetime, ...]
    changes_at: datetime

    @property
    def message(self) -> str:
        """What happens, as a sentence: "02:30 does not exist on 29 March 2026 in …"."""
        happens = "does not exist" if self.kind == "gap" else "happens twice"
        when = f"on {long_date(self.local_time)} in {self.timezone}"
        return f"{clock_time(self.local_time)} {happens} {when}: {self._outcome()}"

    def _outcome(self) -> str:
        if not self.runs_at:
            return "will not run"
        if self.kind == "fold":
            times = " and ".join(f"{clock_time(fire)} UTC" for fire in self.runs_at)
            which = {"first": "only the first time", "second": "only the second time"}
            return f"will run {which.get(self.rule, 'both times')} ({times})"
        fire = self.runs_at[0].astimezone(load_zone(self.timezone))
        date = "" if fire.date() == self.local_time.date() else f" on {long_date(fire)}"
        return f"will run at {clock_time(fire)}{date}"


def notes(plan: Plan, after: datetime, until: datetime) -> Iterator[ClockChangeNote]:
    """Yield a note for each touched wall time of each change with after < change <= until."""
    for change in changes_between(plan.zone, after, until):
        start, end = sorted((change.at + change.before, change.at + change.after))
        wall = first_wall_from(plan.fields, start)
        while wall is not None and wall < end:
            yield _note(plan, change, wall)
            wall = first_wall_from(plan.fields, wall + MINUTE)


def _note(plan: Plan, change: ClockChange, wall: datetime) -> ClockChangeNote:
    is_gap = change.after > change.before
    first, second = wall - change.before, wall - change.after
    outcomes: dict[str, tuple[datetime, ...]] = {
        "skip": (),
        "after": (change.at,),
        "shift": (first,),
        "first": (first,),
        "second": (second,),
        "both": (first, second),
    }
    rule = plan.gap if is_gap else plan.fold
    return ClockChangeNote(
        local_time=wall,
        timezone=plan.zone,
        kind="gap" if is_gap else "fold",
        rule=rule,
        runs_at=tuple(fire.replace(tzinfo=UTC) for fire in outcomes[rule]),
        changes_at=change.at.replace(tzinfo=UTC),
    )
