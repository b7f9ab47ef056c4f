"""Fixed intervals of elapsed time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence import moments
from django_reliable_jobs.recurrence.clock_change_notes import ClockChangeNote
from django_reliable_jobs.spelling import spelt_class

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@spelt_class("Every(minutes=5)", InvalidRecurrence)
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Every:
    """Fires at anchor + k x interval (k = 0, 1, 2 …) in elapsed time, for ever in the same phase.

    The anchor (an aware datetime; default: the Unix epoch) is the first fire; nothing fires before
    it. There is no zone and no clock-change rule: an hour is an hour through every change, and
    `Every(days=1)` is 24 hours. A calendar day at a wall time is a `Cron`. Fires are computed from
    the anchor, never from a last run, so that a late run moves nothing.

    Raises InvalidRecurrence unless the interval is a whole number of seconds, at least one, and the
    anchor is aware.
    """

    kind: ClassVar[str] = "every"

    interval: timedelta
    anchor: datetime

    def __init__(
        self,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        anchor: datetime = EPOCH,
    ) -> None:
        try:
            interval = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRecurrence(f"the interval is not a length of time: {error}") from None
        if interval < timedelta(seconds=1):
            raise InvalidRecurrence(
                f"the interval is {interval.total_seconds():g} s, less than one second: "
                "give weeks, days, hours, minutes or seconds, for example Every(minutes=5)"
            )
        if interval.microseconds:
            raise InvalidRecurrence(f"the interval is {interval.total_seconds()} s: it must be whole seconds")
        object.__setattr__(self, "interval", interval)
        object.__setattr__(self, "anchor", moments.declared_moment(anchor, "anchor"))

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first fire strictly later than `moment`; None only past the year 9999."""
        # Floor division of timedeltas is exact integer arithmetic.
        steps = (moments.as_utc(moment) - self.anchor) // self.interval + 1
        return self._fire(max(steps, 0))

    def last_before(self, moment: datetime) -> datetime | None:
        """Return the last fire strictly earlier than `moment`; None up to the anchor."""
        steps = -((self.anchor - moments.as_utc(moment)) // self.interval) - 1
        return self._fire(steps) if steps >= 0 else None

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the fires with after < fire <= until, lazily: the caller sets the bound."""
        return moments.walk(self.next_after, moments.as_utc(after, "after"), moments.as_utc(until, "until"))

    def clock_change_notes(self, after: datetime, until: datetime) -> Iterator[ClockChangeNote]:
        """Yield nothing: elapsed time knows no clock changes."""
        moments.as_utc(after, "after"), moments.as_utc(until, "until")
        return iter(())

    def describe(self) -> str:
        """Return what runs, in plain English."""
        parts = self._parts()
        if len(parts) == 1 and parts[0][0] == 1:
            length = parts[0][1].removesuffix("s")
        else:
            length = _joined([f"{n} {unit if n > 1 else unit[:-1]}" for n, unit in parts])
        start = f"{moments.long_date(self.anchor)} {moments.clock_time(self.anchor)} UTC"
        return f"Every {length} of elapsed time, counted from {start}."

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-able form that `from_dict` reads."""
        seconds = self.interval // timedelta(seconds=1)
        return {"kind": self.kind, "seconds": seconds, "anchor": self.anchor.isoformat()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Every:
        """Make the value that `as_dict` was called on. Raises InvalidRecurrence."""
        moments.refuse_other_keys(stored, cls.kind, {"seconds", "anchor"})
        anchor = stored.get("anchor")
        return cls(
            seconds=stored.get("seconds", 0),
            anchor=EPOCH if anchor is None else moments.stored_moment(anchor, "anchor"),
        )

    def __repr__(self) -> str:
        arguments = [f"{unit}={number}" for number, unit in self._parts()]
        if self.anchor != EPOCH:
            arguments.append(f"anchor={self.anchor!r}")
        return f"Every({', '.join(arguments)})"

    def _fire(self, steps: int) -> datetime | None:
        try:
            return self.anchor + steps * self.interval
        except OverflowError:
            return None

    def _parts(self) -> list[tuple[int, str]]:
        rest, parts = self.interval // timedelta(seconds=1), []
        for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1)):
            number, rest = divmod(rest, size)
            if number:
                parts.append((number, unit))
        return parts


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
