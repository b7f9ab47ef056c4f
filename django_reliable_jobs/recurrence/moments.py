"""Moments at the border of the package: aware datetimes outside, naive UTC inside.

Naive UTC inside, since the searches compare and subtract many datetimes, and aware ones make each
step several times dearer. The names keep the two apart: an *instant* is naive UTC, a *wall* time is
naive local time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django_reliable_jobs.exceptions import InvalidRecurrence

# Not from calendar or strftime, which follow the locale of the process.
MONTH_NAMES = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def as_utc(moment: datetime, name: str = "moment") -> datetime:
    """Return `moment` in UTC. Raises TypeError if it is no datetime, ValueError if it is naive."""
    if not isinstance(moment, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise ValueError(
            f"{name} {moment.isoformat()} is naive: give it a time zone, "
            "for example datetime(2026, 3, 29, 2, 30, tzinfo=UTC)"
        )
    return moment.astimezone(UTC)


def as_instant(moment: datetime, name: str = "moment") -> datetime:
    """Return `moment` as naive UTC. Raises as `as_utc`."""
    return as_utc(moment, name).replace(tzinfo=None)


def declared_moment(moment: datetime, name: str) -> datetime:
    """Return a declared `moment` in UTC; what `as_utc` would refuse raises InvalidRecurrence."""
    try:
        return as_utc(moment, name)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRecurrence(str(error)) from None


def stored_moment(text: Any, name: str) -> datetime:
    """Read a moment of the dict form; raises InvalidRecurrence."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InvalidRecurrence(f"{name} {text!r} is not a date and time in ISO 8601") from None
    return declared_moment(moment, name)


def refuse_other_keys(stored: Mapping[str, Any], kind: str, allowed: set[str]) -> None:
    """Raise InvalidRecurrence unless `stored` is of `kind` and has no keys but `allowed`."""
    if stored.get("kind") != kind:
        raise InvalidRecurrence(f"kind {stored.get('kind')!r} is not {kind!r}")
    others = set(stored) - allowed - {"kind"}
    if others:
        unknown, known = (", ".join(sorted(map(str, names))) for names in (others, allowed))
        raise InvalidRecurrence(f"{kind} has no {unknown}: it has {known}")


def walk(next_after: Callable[[datetime], datetime | None], after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the fires with after < fire <= until, one search at a time."""
    fire = next_after(after)
    while fire is not None and fire <= until:
        yield fire
        fire = next_after(fire)


def long_date(moment: datetime) -> str:
    """Return the date as people write it: 29 March 2026."""
    return f"{moment.day} {MONTH_NAMES[moment.month - 1]} {moment.year}"


def clock_time(moment: datetime) -> str:
    """Return 02:30; with seconds only where there are some, as after a change of an old offset."""
    if moment.second or moment.microsecond:
        return moment.time().isoformat()
    return moment.strftime("%H:%M")
