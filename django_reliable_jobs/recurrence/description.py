"""What a cron expression runs, in plain English.

Written from the expanded values that the search uses, not from the text of the expression, so that
the two can't disagree; "every 15 minutes" is only said of minutes that are evenly spread over the
hour. The sentences are regular enough to be read back, and the tests do so: each description gives
the values it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache

from django_reliable_jobs.recurrence.clock_change_notes import notes
from django_reliable_jobs.recurrence.cron_fields import CronFields
from django_reliable_jobs.recurrence.fires import Plan
from django_reliable_jobs.recurrence.moments import MONTH_NAMES

WEEKDAY_NAMES = (
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
)

_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_MOST_TIMES_LISTED = 6

# Zone files name the changes up to 2037; what follows repeats the last rule. Eleven years hold
# every weekday for a date, so that a yearly run meets a change if it ever does.
_YEARS_LOOKED_AT = (datetime(2025, 1, 1), datetime(2038, 1, 1))

_GAP_SENTENCES = {
    "skip": "Times that the clock skips do not run.",
    "after": "Times that the clock skips run once, at the first moment after the change.",
    "shift": "Times that the clock skips run as much later as the clock jumped.",
}
_FOLD_SENTENCES = {
    "first": "Times that occur twice run the first time only.",
    "second": "Times that occur twice run the second time only.",
    "both": "Times that occur twice run both times.",
}


def describe(plan: Plan) -> str:
    """Return a sentence on the times, and one on each rule that a clock change can call on."""
    parts = [_times(plan.fields), _days(plan.fields), _months(plan.fields)]
    sentences = [f"{', '.join(filter(None, parts))} ({plan.zone})."]
    touched = _kinds_of_changes(plan)
    if "gap" in touched:
        sentences.append(_GAP_SENTENCES[plan.gap])
    if "fold" in touched:
        sentences.append(_FOLD_SENTENCES[plan.fold])
    return " ".join(sentences)


@lru_cache(maxsize=1024)
def _kinds_of_changes(plan: Plan) -> frozenset[str]:
    kinds: set[str] = set()
    for note in notes(plan, *_YEARS_LOOKED_AT):
        kinds.add(note.kind)
        if len(kinds) == 2:
            break
    return frozenset(kinds)


def _times(fields: CronFields) -> str:
    minutes, hours = fields.minutes, fields.hours
    if len(hours) < 24 and len(minutes) * len(hours) <= _MOST_TIMES_LISTED:
        return f"At {_listed([_time(hour, minute) for hour in hours for minute in minutes])}"
    if len(hours) == 24:
        return _minutes_of_every_hour(minutes)
    if pace := _pace_through(minutes, hours):
        return f"{pace} from {_time(hours[0], minutes[0])} to {_time(hours[-1], minutes[-1])}"
    return f"{_minutes(minutes)} of the hours {_runs(hours, lambda hour: f'{hour:02}')}"


def _pace_through(minutes: tuple[int, ...], hours: tuple[int, ...]) -> str:
    """The pace of times that are evenly spread from the first to the last, else nothing."""
    step = hours[1] - hours[0] if len(hours) > 1 else 1
    if hours != tuple(range(hours[0], hours[-1] + 1, step)):
        return ""
    if len(minutes) == 1:
        return "Every hour" if step == 1 else f"Every {step} hours"
    return _pace(_interval(minutes)) if step == 1 and _interval(minutes) else ""


def _minutes_of_every_hour(minutes: tuple[int, ...]) -> str:
    interval = _interval(minutes)
    if interval == 1:
        return "Every minute"
    if interval:
        return f"{_pace(interval)}, counted from the full hour"
    return f"{_minutes(minutes)} of every hour"


def _minutes(minutes: tuple[int, ...]) -> str:
    word = "minute" if len(minutes) == 1 else "minutes"
    return f"At {word} {_runs(minutes, str)}"


def _interval(minutes: tuple[int, ...]) -> int:
    """The distance of minutes that are evenly spread over the hour from :00 on, else 0."""
    interval = 60 // len(minutes)
    return interval if len(minutes) > 1 and minutes == tuple(range(0, 60, interval)) else 0


def _pace(interval: int) -> str:
    return "Every minute" if interval == 1 else f"Every {interval} minutes"


def _days(fields: CronFields) -> str:
    days, weekdays = fields.days, fields.weekdays
    if days and weekdays:
        return f"on {_days_of_month(days)} and also on {_weekdays(weekdays)}"
    if days:
        return f"on {_days_of_month(days)}"
    if weekdays:
        named = _weekdays(weekdays)
        is_one_run = " to " in named and " and " not in named
        return named if is_one_run else f"on {named}"
    return "every day"


def _days_of_month(days: tuple[str, ...]) -> str:
    if days[0].endswith("W"):
        number = int(days[0][:-1])
        short = " or, in a shorter month, to its last day" if number > 28 else ""
        return f"the weekday (Monday to Friday) nearest to day {number} of the month{short}"
    numbers = [int(day) for day in days if day != "L"]
    last = ["the last day"] if "L" in days else []
    if not numbers:
        return "the last day of the month"
    word = "day" if len(numbers) == 1 else "days"
    named = " and ".join([f"{word} {_runs(numbers, str)}", *last])
    lacking = " (days that a month lacks are left out)" if numbers[-1] > 28 else ""
    return f"{named} of the month{lacking}"


def _weekdays(weekdays: tuple[str, ...]) -> str:
    if not weekdays[0].isdigit():
        return _listed([_special_weekday(weekday) for weekday in weekdays])
    # The week as a reader expects it: Monday first.
    ordered = sorted((int(weekday) + 6) % 7 for weekday in weekdays)
    return _runs(ordered, lambda number: WEEKDAY_NAMES[(number + 1) % 7])


def _special_weekday(weekday: str) -> str:
    if weekday.startswith("L"):
        return f"the last {WEEKDAY_NAMES[int(weekday[1:])]} of the month"
    day, number = weekday.split("#")
    return f"the {_ORDINALS[int(number) - 1]} {WEEKDAY_NAMES[int(day)]} of the month"


def _months(fields: CronFields) -> str:
    if len(fields.months) == 12:
        return ""
    return f"only in {_runs(fields.months, lambda month: MONTH_NAMES[month - 1])}"


def _runs(values: Sequence[int], name: Callable[[int], str]) -> str:
    """List the values, three or more in a row as "a to b"."""
    words: list[str] = []
    start = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and values[end] == values[end - 1] + 1:
            continue
        run = [name(value) for value in values[start:end]]
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
        start = end
    return _listed(words)


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _time(hour: int, minute: int) -> str:
    return f"{hour:02}:{minute:02}"
