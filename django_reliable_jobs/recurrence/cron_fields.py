"""The grammar of cron expressions: text in, sorted values out, or a refusal.

Five fields, or a macro (@yearly @annually @monthly @weekly @daily @midnight @hourly):

    minute 0-59, hour 0-23, day of the month 1-31, month 1-12 or jan-dec, weekday 0-7 or sun-sat
    (0 and 7 are Sunday)

    *  */n  a  a-b  a-b/n  a/n (= a to the end of the field, by n)  and lists of these
    ?    in the two day fields: the same as *
    L    day of the month: its last day, also in a list
    15W  day of the month: the weekday (Monday to Friday) nearest to the 15th within the month; in a
         month without that day, nearest to its last day
    5#2  weekday: the second Friday
    L5   weekday: the last Friday

A range with a > b wraps in hours, months and weekdays, and its step carries through the wrap
(23-5/4 is 23 and 3); in minutes and days of the month it is refused as a typo. If both day fields
are restricted, either matches; a field is free if it is `*`, `?` or `*/1`. L, W and # need the
other day field free.

This grammar is our own and strict, and croniter never sees what the user wrote: croniter 7 reads
`5-5` as the whole field, drifts by one after a wrapped step, takes `*/90` for hourly and `*/1` in
a day field for a restriction. Its next version may read other things differently, and an upgrade
must not move live schedules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence.cron_items import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    WEEKDAY,
    numbers,
    refusal,
    value,
)

MAXIMUM_LENGTH = 255

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_NEAREST = re.compile(r"([0-9]+)w")
_NTH = re.compile(r"([0-9]+|[a-z]+)#([0-9]+)")
_LAST = re.compile(r"l([0-9]+|[a-z]{3})")
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class CronFields:
    """What an expression means.

    `days` holds "1" to "31", "L" or "15W"; `weekdays` holds "0" (Sunday) to "6", "5#2" or "L5";
    empty: the field restricts nothing. Days that no named month has are left out, and where the
    two fields together match every day, both are empty.

    `is_wildcard` is Debian cron's rule: the minute or the hour field, as written, starts with `*`.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[str, ...]
    months: tuple[int, ...]
    weekdays: tuple[str, ...]
    is_wildcard: bool

    @property
    def calendar(self) -> str:
        """The day, month and weekday fields in canonical form: sorted lists, or `*`."""
        months = "*" if len(self.months) == 12 else ",".join(map(str, self.months))
        return f"{','.join(self.days) or '*'} {months} {','.join(self.weekdays) or '*'}"

    @property
    def canonical(self) -> str:
        """All five fields in canonical form."""
        minutes = "*" if len(self.minutes) == 60 else ",".join(map(str, self.minutes))
        hours = "*" if len(self.hours) == 24 else ",".join(map(str, self.hours))
        return f"{minutes} {hours} {self.calendar}"


def parse(expression: str) -> CronFields:
    """Read an expression. Raises InvalidRecurrence: field, value, reason and the way out."""
    try:
        return _parse_fields(_split(expression))
    except InvalidRecurrence as error:
        shown = expression if len(expression) <= 80 else f"{expression[:80]}…"
        raise InvalidRecurrence(f"cron expression {shown!r}: {error}") from None


def _split(expression: str) -> list[str]:
    if len(expression) > MAXIMUM_LENGTH:
        raise InvalidRecurrence(f"it has {len(expression)} characters, {MAXIMUM_LENGTH} at most")
    if not expression.isascii():
        strange = next(character for character in expression if not character.isascii())
        raise InvalidRecurrence(f"{strange!r} is not ASCII: use digits, letters and * , - / ? # only")
    # Spaces and tabs only, as in a crontab: str.split would take other control characters too.
    fields = re.findall(r"[^ \t]+", expression.lower())
    if len(fields) == 1 and fields[0] in MACROS:
        return MACROS[fields[0]].split()
    if fields and fields[0].startswith("@"):
        raise InvalidRecurrence(_unknown_macro(fields[0]))
    if len(fields) != 5:
        raise InvalidRecurrence(_wrong_number_of_fields(fields))
    return fields


def _parse_fields(fields: list[str]) -> CronFields:
    minute, hour, day, month, weekday = fields
    minutes, hours = numbers(MINUTE, minute), numbers(HOUR, hour)
    days, months, weekdays = _days(day), numbers(MONTH, month), _weekdays(weekday)
    _refuse_special_beside_restricted(days, weekdays)
    days, weekdays = _simplify(days, months, weekdays)
    return CronFields(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        is_wildcard=minute.startswith("*") or hour.startswith("*"),
    )


def _days(text: str) -> tuple[str, ...]:
    if text == "?":
        return ()
    items = text.split(",")
    nearest = [_NEAREST.fullmatch(item) for item in items]
    if any(nearest):
        if len(items) > 1:
            raise refusal(DAY, text, "W stands alone: make a schedule of each item of the list")
        return (f"{value(DAY, text, text[:-1])}W",)
    plain = [item for item in items if item != "l"]
    days = tuple(map(str, numbers(DAY, ",".join(plain)))) if plain else ()
    if _is_free(plain):
        return ()
    return days if len(plain) == len(items) else (*days, "L")


def _weekdays(text: str) -> tuple[str, ...]:
    if text == "?":
        return ()
    items = text.split(",")
    special = sorted({found for item in items if (found := _special_weekday(text, item))})
    plain = [item for item in items if not _special_weekday(text, item)]
    if special and plain:
        raise refusal(WEEKDAY, text, "# and L don't mix with plain weekdays: make two schedules")
    if special:
        return tuple(special)
    weekdays = tuple(map(str, numbers(WEEKDAY, text)))
    return () if _is_free(plain) else weekdays


def _special_weekday(text: str, item: str) -> str | None:
    if nth := _NTH.fullmatch(item):
        if not 1 <= int(nth[2]) <= 5:
            raise refusal(WEEKDAY, text, f"#{nth[2]} is out of range: use #1 to #5")
        return f"{value(WEEKDAY, text, nth[1]) % 7}#{int(nth[2])}"
    if last := _LAST.fullmatch(item):
        return f"L{value(WEEKDAY, text, last[1]) % 7}"
    if item == "l":
        raise refusal(WEEKDAY, text, "L needs a weekday here: L5 is the last Friday")
    return None


def _is_free(items: list[str]) -> bool:
    return "*" in items or "*/1" in items


def _refuse_special_beside_restricted(days: tuple[str, ...], weekdays: tuple[str, ...]) -> None:
    if not (days and weekdays):
        return
    # croniter would silently take "both match" for these, and plain cron "either matches".
    if not all(map(str.isdigit, days)):
        raise refusal(DAY, ",".join(days), "L and W need the weekday field free: write * there")
    if not all(map(str.isdigit, weekdays)):
        reason = "# and L need the day-of-month field free: write * there"
        raise refusal(WEEKDAY, ",".join(weekdays), reason)


def _simplify(
    days: tuple[str, ...], months: tuple[int, ...], weekdays: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    longest = max(_LONGEST_MONTHS[month - 1] for month in months)
    possible = tuple(day for day in days if not day.isdigit() or int(day) <= longest)
    if days and not possible and not weekdays:
        reason = f"never comes: the longest of the named months has {longest} days"
        raise refusal(DAY, ",".join(days), f"{reason}; for the last day of a month write L")
    every_day = len(list(filter(str.isdigit, possible))) == longest
    every_weekday = len(list(filter(str.isdigit, weekdays))) == 7
    return ((), ()) if every_day or every_weekday else (possible, weekdays)


def _unknown_macro(word: str) -> str:
    if word == "@every":
        return "@every is not cron: use Every, for example Every(minutes=90)"
    if word == "@reboot":
        return "@reboot is not a moment in time: enqueue the job where the process starts"
    return f"{word} is not a macro: use {', '.join(MACROS)}"


def _wrong_number_of_fields(fields: list[str]) -> str:
    if not fields:
        return "it is empty: write five fields (minute hour day month weekday)"
    found = f"{len(fields)} {'field' if len(fields) == 1 else 'fields'}"
    more = "; for seconds use Every, for example Every(seconds=30)" if len(fields) > 5 else ""
    return f"{found} instead of five (minute hour day month weekday){more}"
