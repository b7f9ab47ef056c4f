"""One moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence import moments
from django_reliable_jobs.recurrence.clock_change_notes import ClockChangeNote
from django_reliable_jobs.spelling import spelt_class


@spelt_class("Once(at=datetime(2030, 1, 31, 8, tzinfo=UTC))", InvalidRecurrence)
@dataclass(frozen=True, slots=True)
class Once:
    """Fires once, at `at`: an aware datetime. Raises InvalidRecurrence for anything else."""

    kind: ClassVar[str] = "once"

    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", moments.declared_moment(self.at, "at"))

    def next_after(self, moment: datetime) -> datetime | None:
        """Return `at` if it is strictly later than `moment`, else None."""
        return self.at if self.at > moments.as_utc(moment) else None

    def last_before(self, moment: datetime) -> datetime | None:
        """Return `at` if it is strictly earlier than `moment`, else None."""
        return self.at if self.at < moments.as_utc(moment) else None

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield `at` if after < at <= until."""
        return moments.walk(self.next_after, moments.as_utc(after, "after"), moments.as_utc(until, "until"))

    def clock_change_notes(self, after: datetime, until: datetime) -> Iterator[ClockChangeNote]:
        """Yield nothing: a moment is not a wall time."""
        moments.as_utc(after, "after"), moments.as_utc(until, "until")
        return iter(())

    def describe(self) -> str:
        """Return what runs, in plain English."""
        return f"Once, on {moments.long_date(self.at)} at {moments.clock_time(self.at)} (UTC)."

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-able form that `from_dict` reads."""
        return {"kind": self.kind, "at": self.at.isoformat()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Once:
        """Make the value that `as_dict` was called on. Raises InvalidRecurrence."""
        moments.refuse_other_keys(stored, cls.kind, {"at"})
        if "at" not in stored:
            raise InvalidRecurrence("once has no 'at'")
        return cls(at=moments.stored_moment(stored["at"], "at"))
