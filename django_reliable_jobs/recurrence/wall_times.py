"""Which wall-clock minutes match: naive local datetimes, in wall order, without any time zone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date, datetime, timedelta

from django_reliable_jobs.recurrence.cron_fields import CronFields
from django_reliable_jobs.recurrence.day_calendar import first_day_from, last_day_until

MINUTE = timedelta(minutes=1)

_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


def first_wall_from(fields: CronFields, wall: datetime) -> datetime | None:
    """Return the first matching minute at or after `wall`, or None."""
    if wall.second or wall.microsecond:
        wall = wall.replace(second=0, microsecond=0) + MINUTE
    today = wall.date()
    day = first_day_from(fields.calendar, today)
    if day == today:
        time = _first_time_from(fields, wall.hour, wall.minute)
        if time is not None:
            return _at(today, time)
        day = first_day_from(fields.calendar, today + _DAY)
    return None if day is None else _at(day, (fields.hours[0], fields.minutes[0]))


def last_wall_before(fields: CronFields, wall: datetime) -> datetime | None:
    """Return the last matching minute strictly before `wall`, or None."""
    wall -= _MICROSECOND
    today = wall.date()
    day = last_day_until(fields.calendar, today)
    if day == today:
        time = _last_time_until(fields, wall.hour, wall.minute)
        if time is not None:
            return _at(today, time)
        day = last_day_until(fields.calendar, today - _DAY)
    return None if day is None else _at(day, (fields.hours[-1], fields.minutes[-1]))


def _first_time_from(fields: CronFields, hour: int, minute: int) -> tuple[int, int] | None:
    hours, minutes = fields.hours, fields.minutes
    index = bisect_left(hours, hour)
    if index < len(hours) and hours[index] == hour:
        if minute <= minutes[-1]:
            return hour, minutes[bisect_left(minutes, minute)]
        index += 1
    return (hours[index], minutes[0]) if index < len(hours) else None


def _last_time_until(fields: CronFields, hour: int, minute: int) -> tuple[int, int] | None:
    hours, minutes = fields.hours, fields.minutes
    index = bisect_right(hours, hour) - 1
    if index >= 0 and hours[index] == hour:
        if minute >= minutes[0]:
            return hour, minutes[bisect_right(minutes, minute) - 1]
        index -= 1
    return (hours[index], minutes[-1]) if index >= 0 else None


def _at(day: date, time: tuple[int, int]) -> datetime:
    return datetime(day.year, day.month, day.day, time[0], time[1])
