"""When the local clock of a zone changes, found by asking the zone for its offset.

A *change* is an instant at which the offset from UTC changes, for whatever reason: summer time, a
new standard time, a skipped day. Between two changes lies a *span* with one offset, in which local
time is UTC plus that offset and nothing can be skipped or repeated. Only UTC to local is ever asked
of a zone: that direction has one answer.

Instants are naive UTC.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from django_reliable_jobs.exceptions import InvalidRecurrence

# Close enough to miss no change: the shortest time between two changes that the zone database
# knows, in all zones and since 1880, is almost four days.
_SAMPLE = timedelta(days=2)
_SECOND = timedelta(seconds=1)

# Names that mean another zone on another host, and zones that count leap seconds.
_HOST_NAMES = {"localtime", "posixrules", "Factory"}
_HOST_FOLDERS = ("posix/", "right/")


class ClockChange(NamedTuple):
    """At `at`, the offset changes from `before` to `after`."""

    at: datetime
    before: timedelta
    after: timedelta


class Span(NamedTuple):
    """start <= instant < end has `offset`; `before` and `after` are those of its neighbours.

    Spans are cut at about a year: there, `before` or `after` equals `offset`.
    """

    start: datetime
    end: datetime
    before: timedelta
    offset: timedelta
    after: timedelta


def span_at(zone: str, instant: datetime) -> Span:
    """Return the span that holds `instant`. Its end is later than `instant`, always."""
    starts, spans = _spans_around(zone, instant.year)
    return spans[bisect_right(starts, instant) - 1]


def changes_between(zone: str, after: datetime, until: datetime) -> Iterator[ClockChange]:
    """Yield the changes with after < at <= until, in order."""
    for year in range(after.year, until.year + 1):
        for change in _changes_in_year(zone, year):
            if after < change.at <= until:
                yield change


@lru_cache(maxsize=1024)
def load_zone(name: str) -> ZoneInfo:
    """Return the zone of that name; raises InvalidRecurrence."""
    if name in _HOST_NAMES or name.startswith(_HOST_FOLDERS):
        raise InvalidRecurrence(f"timezone {name!r} differs from host to host: name a place, such as 'Europe/Berlin'")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRecurrence(_unknown_zone(name)) from None


@lru_cache(maxsize=8192)
def _spans_around(zone: str, year: int) -> tuple[tuple[datetime, ...], tuple[Span, ...]]:
    begin, end = datetime(year - 1, 1, 1), datetime(year + 2, 1, 1)
    changes = [change for y in (year - 1, year, year + 1) for change in _changes_in_year(zone, y)]
    first = changes[0].before if changes else _offset(load_zone(zone), begin)
    last = changes[-1].after if changes else first
    edges = [ClockChange(begin, first, first), *changes, ClockChange(end, last, last)]
    spans = [Span(left.at, right.at, left.before, left.after, right.after) for left, right in pairwise(edges)]
    return tuple(span.start for span in spans), tuple(spans)


@lru_cache(maxsize=16_384)
def _changes_in_year(name: str, year: int) -> tuple[ClockChange, ...]:
    zone, changes = load_zone(name), []
    # From the last second of the year before, so that a change at New Year is in its year.
    left = datetime(year, 1, 1) - _SECOND
    end = datetime(year + 1, 1, 1) - _SECOND
    before = _offset(zone, left)
    while left < end:
        right = min(left + _SAMPLE, end)
        after = _offset(zone, right)
        if after != before:
            changes.append(ClockChange(_first_with(zone, after, left, right), before, after))
        left, before = right, after
    return tuple(changes)


def _first_with(zone: ZoneInfo, offset: timedelta, left: datetime, right: datetime) -> datetime:
    while right - left > _SECOND:
        middle = left + (right - left) // (2 * _SECOND) * _SECOND
        if _offset(zone, middle) == offset:
            right = middle
        else:
            left = middle
    return right


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101  a ZoneInfo always has one
    return offset


def _unknown_zone(name: str) -> str:
    by_lower = {known.lower(): known for known in available_timezones()}
    close = get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    return (
        f"timezone {name!r} is not known on this machine: {hint}Use a name of the IANA database, "
        "such as 'Europe/Berlin' or 'UTC'"
    )
