"""From wall time to UTC: when a cron expression fires in a zone, by the schedule's rules.

W is the set of wall-clock minutes that match. A wall time that occurs once fires then. Where the
clock jumps forward, by any amount, some never occur (a *gap*): they are skipped (`skip`), fire at
the first instant after the jump (`after`), or where they would have been (`shift`: 02:30 at 03:30).
Where it goes back, some occur twice (a *fold*): they fire the `first` time, the `second` or `both`.
The fires are a set: wall times that land on one instant are one fire.

The search looks at one span of constant offset at a time. In a span the wall times come in the
order of the instants, so that one step in wall time finds the span's first fire; what the change at
its start skipped fires in the span too. A sparse expression goes straight to the span of its next
wall time.

Instants are naive UTC; wall times are naive local.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django_reliable_jobs.recurrence.clock_changes import Span, span_at
from django_reliable_jobs.recurrence.cron_fields import CronFields
from django_reliable_jobs.recurrence.wall_times import first_wall_from, last_wall_before

# Where datetimes end, croniter's arithmetic does too; these years leave it room.
EARLIEST = datetime(1900, 1, 1)
LATEST = datetime(9900, 1, 1)

# No day of the calendar is longer away than 40 years (a fifth Friday in February, across 2100).
SEARCH_LIMIT = timedelta(days=50 * 366)

# A clock change moves a fire by a day at most (a skipped day), and zones are at most 26 hours
# apart; two changes of one zone are never so close together.
_REACH_OF_A_CHANGE = timedelta(days=2)

_TICK = timedelta(microseconds=1)


class Plan(NamedTuple):
    """An expression, its zone, and its rules with `auto` resolved."""

    fields: CronFields
    zone: str
    gap: str
    fold: str


def first_fire_after(plan: Plan, instant: datetime) -> datetime | None:
    """Return the first fire strictly later; None if there is none within fifty years."""
    position = instant = max(instant, EARLIEST)
    give_up = min(LATEST, instant + SEARCH_LIMIT) if instant < LATEST else LATEST
    while position < give_up:
        span = span_at(plan.zone, position)
        earliest = max(instant + _TICK, span.start)
        wall = _first_wall(plan, span, earliest)
        fires = [_first_skipped(plan, span, earliest)]
        if wall is not None and wall < _end_of_walls(plan, span, span.end):
            fires.append(wall - span.offset)
        if found := [fire for fire in fires if fire is not None]:
            return min(found)
        if wall is None:
            return None
        position = span.end
        if span.end - earliest > _REACH_OF_A_CHANGE:
            position = max(position, wall - span.offset - _REACH_OF_A_CHANGE)
    return None


def last_fire_before(plan: Plan, instant: datetime) -> datetime | None:
    """Return the last fire strictly earlier; None if there is none within fifty years."""
    position = instant = min(instant, LATEST)
    give_up = max(EARLIEST, instant - SEARCH_LIMIT) if instant > EARLIEST else EARLIEST
    while position > give_up:
        span = span_at(plan.zone, position - _TICK)
        latest = min(instant, span.end)
        wall = last_wall_before(plan.fields, _end_of_walls(plan, span, latest))
        fires = [_last_skipped(plan, span, latest)]
        if wall is not None and wall >= _start_of_walls(plan, span, span.start):
            fires.append(wall - span.offset)
        if found := [fire for fire in fires if fire is not None]:
            return max(found)
        if wall is None:
            return None
        position = span.start
        if latest - span.start > _REACH_OF_A_CHANGE:
            position = min(position, wall - span.offset + _REACH_OF_A_CHANGE)
    return None


def _first_wall(plan: Plan, span: Span, earliest: datetime) -> datetime | None:
    return first_wall_from(plan.fields, _start_of_walls(plan, span, earliest))


def _start_of_walls(plan: Plan, span: Span, earliest: datetime) -> datetime:
    """The first wall time of the span, from `earliest`, that may fire in it."""
    wall = earliest + span.offset
    if plan.fold == "first" and span.before > span.offset:
        # The span begins with what the one before it ended with.
        wall = max(wall, span.start + span.before)
    return wall


def _end_of_walls(plan: Plan, span: Span, latest: datetime) -> datetime:
    """The end (exclusive) of the wall times of the span, up to `latest`, that may fire in it."""
    wall = latest + span.offset
    if plan.fold == "second" and span.after < span.offset:
        wall = min(wall, span.end + span.after)
    return wall


def _first_skipped(plan: Plan, span: Span, earliest: datetime) -> datetime | None:
    """The first fire, at `earliest` or later, of what the change at the span's start skipped."""
    if plan.gap == "skip" or span.before >= span.offset:
        return None
    gap_end = span.start + span.offset
    if plan.gap == "after":
        return span.start if span.start >= earliest and _any_in_gap(plan, span) else None
    wall = first_wall_from(plan.fields, earliest + span.before)
    return wall - span.before if wall is not None and wall < gap_end else None


def _last_skipped(plan: Plan, span: Span, latest: datetime) -> datetime | None:
    """The last fire, earlier than `latest`, of what the change at the span's start skipped."""
    if plan.gap == "skip" or span.before >= span.offset:
        return None
    gap_start, gap_end = span.start + span.before, span.start + span.offset
    if plan.gap == "after":
        return span.start if _any_in_gap(plan, span) else None
    wall = last_wall_before(plan.fields, min(latest + span.before, gap_end))
    return wall - span.before if wall is not None and wall >= gap_start else None


def _any_in_gap(plan: Plan, span: Span) -> bool:
    wall = first_wall_from(plan.fields, span.start + span.before)
    return wall is not None and wall < span.start + span.offset
