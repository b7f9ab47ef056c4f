"""What is wrong with a value that can't be carried as JSON, in words that name the place and the way out."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from django.utils.functional import Promise

MAX_DEPTH = 100  # levels of lists and dicts, far below what the stack of PostgreSQL or a thread holds


def find_fault(value: Any, path: str) -> str:
    """Return a sentence about a value that `arguments.dump` refuses."""
    return fault(value, path, frozenset()) or (
        f"{path} is of type {type(value).__qualname__}, which does not come back from JSON as it went in:"
        " pass plain lists and dicts"
    )


def fault(value: Any, path: str, above: frozenset[int]) -> str | None:
    """Return what is wrong with a value inside the lists and dicts `above`, by their ids; None: nothing."""
    if isinstance(value, str):
        return fault_in_text(value, path)
    if isinstance(value, dict | list):
        return _fault_inside(value, path, above)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        is_long = value.bit_length() > 14_000  # Python reads and writes no more than 4,300 digits
        return f"{path} is a whole number of more than 4,000 digits: pass hex(value)" if is_long else None
    if isinstance(value, float) and math.isfinite(value):
        return None
    return f"{path} is {_described(value)}"


def _fault_inside(value: dict[Any, Any] | list[Any], path: str, above: frozenset[int]) -> str | None:
    if id(value) in above:
        return f"{path} contains itself"
    if len(above) >= MAX_DEPTH:
        name = path.partition("[")[0]
        return f"{name} is nested more than {MAX_DEPTH} levels deep: store the data and pass its id"
    above |= {id(value)}
    for key in value if isinstance(value, dict) else ():
        if not isinstance(key, str):
            return f"{path} has the key {key!r}: JSON keys are text, pass str(key)"
        if found := fault_in_text(key, f"the key {key!a} of {path}"):
            return found
    items = value.items() if isinstance(value, dict) else enumerate(value)
    faults = (fault(each, f"{path}[{key!r}]", above) for key, each in items)
    return next((found for found in faults if found), None)


def fault_in_text(text: str, path: str) -> str | None:
    """Return why PostgreSQL can't store a text; None: it can."""
    if "\0" in text:
        return f"{path} contains the character U+0000 (NUL), which PostgreSQL can't store: remove it"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return f"{path} contains a lone surrogate, which is not text: decode it properly, or drop it"
    return None


# Subclasses before their parents: a datetime is a date.
_WAYS_OUT: list[tuple[type | tuple[type, ...], str, str]] = [
    (datetime, "a datetime", "pass value.isoformat() and read it with datetime.fromisoformat() in the task"),
    (date, "a date", "pass value.isoformat() and read it with date.fromisoformat() in the task"),
    (time, "a time", "pass value.isoformat() and read it with time.fromisoformat() in the task"),
    (timedelta, "a timedelta", "pass value.total_seconds() and rebuild it with timedelta(seconds=…) in the task"),
    (UUID, "a UUID", "pass str(value) and rebuild it with UUID(…) in the task"),
    (Decimal, "a Decimal", "pass str(value) and rebuild it with Decimal(…) in the task"),
    (Enum, "an Enum member", "pass value.value"),
    (float, "not a finite number", "JSON has no NaN and no infinity: pass None or a number"),
    (tuple, "a tuple", "it would come back as a list: pass list(value)"),
    ((bytes, bytearray, memoryview), "bytes", "pass text, for example base64.b64encode(value).decode()"),
    ((set, frozenset), "a set", "pass sorted(value)"),
    (PurePath, "a path", "pass str(value)"),
]


def _described(value: Any) -> str:
    if isinstance(value, Promise):
        return "a lazy text: pass str(value)"
    for kind, name, way_out in _WAYS_OUT:
        if isinstance(value, kind):
            return f"{name} ({value!r:.80}): {way_out}"
    if hasattr(value, "pk") and hasattr(value, "_meta"):
        return f"a model instance ({value._meta.object_name}): pass its primary key and load it in the task"
    if hasattr(value, "values_list"):
        return "a QuerySet: pass list(value.values_list('pk', flat=True)) and load them in the task"
    return (
        f"of type {type(value).__qualname__}, which is not JSON: pass text, numbers, True, False, None, lists and dicts"
    )
