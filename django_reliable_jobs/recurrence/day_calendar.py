"""Which days match: croniter's part.

croniter answers one question here, "the next (previous) day that these three canonical fields
match", on naive dates. It carries the calendar: month lengths, leap years, the last day, the
nearest weekday, the n-th weekday, and either-or of the two day fields; the tests hold it to an
independent calendar, forwards and backwards. Two things are kept from it:

- the time of day. It is found by bisection in sorted lists (`wall_times`), an order of magnitude
  faster than a croniter step and equal to it; so a job that runs every minute asks for a day once
  a day, and schedules that share their day fields share the answer.
- time zones. croniter with aware times runs a fixed daily job twice when the clock goes back and
  adds runs when it goes forward (`fires` has our rules).
"""

from __future__ import annotations

import threading
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

from croniter import CroniterBadDateError, croniter

EVERY_DAY = "* * *"

_MINUTE = timedelta(minutes=1)
_MIDNIGHT = datetime.min.time()
_PARSED_AT_MOST = 1024


@lru_cache(maxsize=16_384)
def first_day_from(calendar: str, day: date) -> date | None:
    """Return the first day that matches, `day` or later; None if there is none in fifty years."""
    if calendar == EVERY_DAY:
        return day
    start = datetime.combine(day, _MIDNIGHT) - _MINUTE
    return _search(_croniter(calendar).get_next, start)


@lru_cache(maxsize=16_384)
def last_day_until(calendar: str, day: date) -> date | None:
    """Return the last day that matches, `day` or earlier; None if there is none in fifty years."""
    if calendar == EVERY_DAY:
        return day
    start = datetime.combine(day, _MIDNIGHT) + _MINUTE
    return _search(_croniter(calendar).get_prev, start)


def _search(search: Any, start: datetime) -> date | None:
    try:
        found: datetime = search(datetime, start_time=start)
    except CroniterBadDateError:
        return None
    return found.date()


class _Parsed(threading.local):
    """A croniter keeps its position, so each thread has its own; parsing costs more than a step."""

    def __init__(self) -> None:
        self.by_calendar: dict[str, Any] = {}


_parsed = _Parsed()


def _croniter(calendar: str) -> Any:
    found = _parsed.by_calendar.get(calendar)
    if found is None:
        if len(_parsed.by_calendar) >= _PARSED_AT_MOST:
            _parsed.by_calendar.clear()
        found = croniter(f"0 0 {calendar}", datetime(2000, 1, 1), max_years_between_matches=50)
        _parsed.by_calendar[calendar] = found
    return found
