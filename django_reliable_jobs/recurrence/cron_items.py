"""One field of a cron expression: its values, or a refusal (field, value, reason, way out)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django_reliable_jobs.exceptions import InvalidRecurrence


@dataclass(frozen=True, slots=True)
class Field:
    """A field and the values it has. A field that wraps takes ranges that run over its end."""

    name: str
    low: int
    high: int
    wraps: bool = False
    names: tuple[str, ...] = ()
    highest_written: int = 0

    @property
    def size(self) -> int:
        return self.high - self.low + 1


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

MINUTE = Field("minute", 0, 59, highest_written=59)
HOUR = Field("hour", 0, 23, wraps=True, highest_written=23)
DAY = Field("day-of-month", 1, 31, highest_written=31)
MONTH = Field("month", 1, 12, wraps=True, names=_MONTHS, highest_written=12)
WEEKDAY = Field("weekday", 0, 6, wraps=True, names=_WEEKDAYS, highest_written=7)

_NEAREST_FORM = (
    "W comes after a day, as in 15W: the weekday (Monday to Friday) nearest to the 15th; 31W is the last one of a month"
)

_ITEM = re.compile(r"(?P<first>\*|[0-9]+|[a-z]+)(?:-(?P<last>[0-9]+|[a-z]+))?(?:/(?P<step>[0-9]+))?")


def numbers(field: Field, text: str) -> tuple[int, ...]:
    """Return the values of a list of items, sorted; raises InvalidRecurrence."""
    values: set[int] = set()
    for item in text.split(","):
        values.update(_item_values(field, text, item))
    return tuple(sorted(values))


def value(field: Field, text: str, word: str) -> int:
    """Return the number or name `word` as a number; raises InvalidRecurrence. Sunday may be 7."""
    if word.isdigit():
        if not field.low <= int(word) <= field.highest_written:
            expected = f"{field.low} to {field.highest_written}"
            raise refusal(field, text, f"{word} is out of range: use {expected}")
        return int(word)
    if word in field.names:
        return field.names.index(word) + field.low
    raise refusal(field, text, _unknown_word(field, word))


def refusal(field: Field, text: str, reason: str) -> InvalidRecurrence:
    """Return the error for a field; `parse` puts the expression before it."""
    return InvalidRecurrence(f"{field.name} field {text!r}: {reason}")


def _item_values(field: Field, text: str, item: str) -> set[int]:
    match = _ITEM.fullmatch(item)
    if match is None or (match["first"] == "*" and match["last"]):
        raise refusal(field, text, _unreadable(field, item))
    step = _step(field, text, match["step"])
    first, last = _bounds(field, text, match)
    if first > last:
        if not field.wraps:
            way_out = f"write {last}-{first}, or two ranges in a list"
            raise refusal(field, text, f"{item} runs backwards: {way_out}")
        last += field.size
    return {(number - field.low) % field.size + field.low for number in range(first, last + 1, step)}


def _bounds(field: Field, text: str, match: re.Match[str]) -> tuple[int, int]:
    if match["first"] == "*":
        return field.low, field.high
    first = value(field, text, match["first"])
    last = field.high if match["step"] else first
    if match["last"]:
        last = value(field, text, match["last"])
    if first <= field.high:
        return first, last
    # A range that starts with weekday 7 starts with Sunday, the first day of the field.
    return field.low, (field.low if last == first else last)


def _step(field: Field, text: str, word: str | None) -> int:
    step = 1 if word is None else int(word)
    if step == 0:
        raise refusal(field, text, "a step of 0 never moves on: use 1 or more")
    if step > field.size:
        reason = f"step {step} is larger than the field, which has {field.size} values"
        way_out = "for a longer interval use Every, for a single value write it alone"
        raise refusal(field, text, f"{reason}: {way_out}")
    return step


def _unknown_word(field: Field, word: str) -> str:
    if word[:1] in ("h", "r") and len(word) == 1:
        return (
            f"{word.upper()} (a hashed or random value) is not supported, as a slot must be the "
            "same on every host: write a number, and spread load with jitter"
        )
    if len(word) > 3 and word[:3] in field.names:
        return f"{word} is not a name: only three letters are, write {word[:3]}"
    if field.names:
        return f"{word} is not a name: use {', '.join(field.names)}, or a number"
    if field is DAY and "w" in word:
        return _NEAREST_FORM
    return f"{word} is not a number from {field.low} to {field.high}"


def _unreadable(field: Field, item: str) -> str:
    if not item:
        return "an item of the list is empty: remove the comma"
    if item == "?" and field not in (DAY, WEEKDAY):
        return "? is for the two day fields only: write *"
    if "?" in item:
        return "? stands alone, and means *"
    if "#" in item and field is not WEEKDAY:
        return f"{item} can't be read: # belongs in the weekday field, as in 5#2"
    if "#" in item:
        return f"{item} can't be read: write one weekday and its number in the month, as in 5#2"
    if field is DAY and "w" in item:
        return _NEAREST_FORM
    if field is WEEKDAY and item.endswith("l"):
        return f"{item} can't be read: write L first, as in L5 for the last Friday"
    if item.startswith("-"):
        return f"{item} is negative: use {field.low} to {field.highest_written}"
    return f"{item} can't be read: use *, a, a-b, */n, a-b/n or a/n with whole numbers"
