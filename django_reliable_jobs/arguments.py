"""What a job can carry: arguments and results as JSON that comes back as it went in. Pure: no database, no settings."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from django_reliable_jobs.exceptions import InvalidArguments, InvalidResult

# PostgreSQL's jsonb refuses U+0000 and a surrogate without its partner. ensure_ascii writes both as escapes, so that one
# search of the text finds the suspects; only they are looked at closely.
_SUSPECT = re.compile(r"\\u(?:0000|d[89a-f])")


def dump_arguments(
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    task: str,
    max_bytes: int,
) -> tuple[str, str]:
    """Return (args, kwargs) as JSON texts. Raises InvalidArguments, which names the argument and the way out.

    Checked: the signature accepts them; each value survives the round trip through PostgreSQL's JSON; the size.
    """
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidArguments(f"{task}{signature} can't be called with these arguments: {error}") from None
    try:
        texts = _dump(list(args)), _dump(dict(kwargs))
    except ValueError:
        raise InvalidArguments(_name_the_argument(bound, task)) from None
    size = len(texts[0]) + len(texts[1])
    if size > max_bytes:
        largest = max(bound.arguments, key=lambda name: len(_dump(_plain(bound.arguments[name]))))
        raise InvalidArguments(
            f"{task}: the arguments take {size} bytes as JSON, more than MAX_ARGUMENT_BYTES ({max_bytes}); the largest is"
            f" {largest!r}. Store the data and pass its id."
        )
    return texts


def dump_result(value: Any, *, task: str, max_bytes: int) -> str:
    """Return a task's result as JSON text. Raises InvalidResult, which names what can't be stored."""
    try:
        text = _dump(value)
    except ValueError:
        raise InvalidResult(f"{task} returned a value that can't be stored: {_find_fault(value, 'result')}") from None
    if len(text) > max_bytes:
        raise InvalidResult(
            f"{task} returned {len(text)} bytes as JSON, more than MAX_RESULT_BYTES ({max_bytes}). Store the data and"
            " return its id."
        )
    return text


def call_arguments(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, defaults filled in: the same call gives the same dict however it is written."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def hash_of_key(task: str, key: Any) -> bytes:
    """Return 16 bytes for a unique key of a task; equal JSON values give equal hashes."""
    text = json.dumps([task, key], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:16]


def load(text: str) -> Any:
    """Return the value of a JSON text."""
    return json.loads(text)


def without_bad_characters(text: str) -> str:
    """Return the text as PostgreSQL can store it: U+0000 and lone surrogates replaced by U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _dump(value: Any) -> str:
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise ValueError from error
    if json.loads(text) != value or (_SUSPECT.search(text) and _find_fault(value, "") is not None):
        raise ValueError
    return text


def _name_the_argument(bound: inspect.BoundArguments, task: str) -> str:
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            faults = (_find_fault(each, key) for key, each in value.items())
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            faults = (_find_fault(each, f"{name}[{index}]") for index, each in enumerate(value))
        else:
            faults = iter([_find_fault(value, name)])
        for fault in faults:
            if fault is not None:
                return f"{task}: {fault}"
    return f"{task}: the arguments are nested too deeply"


def _find_fault(value: Any, path: str) -> str | None:
    try:
        return _fault(value, path, set())
    except RecursionError:
        return f"{path} is nested too deeply"


def _fault(value: Any, path: str, above: set[int]) -> str | None:
    if isinstance(value, str):
        return _fault_in_text(value, path)
    if isinstance(value, dict | list):
        if id(value) in above:
            return f"{path} contains itself"
        above = above | {id(value)}
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            if isinstance(value, dict) and not isinstance(key, str):
                return f"{path} has the key {key!r}: JSON keys are text, pass str(key)"
            fault = _fault_in_text(str(key), f"a key of {path}") or _fault(each, f"{path}[{key!r}]", above)
            if fault:
                return fault
        return None
    if value is None or isinstance(value, bool | int):
        return None if not isinstance(value, Enum) else _fault_in_enum(value, path)
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return None
    return f"{path} is {_described(value)}"


def _fault_in_text(text: str, path: str) -> str | None:
    if "\0" in text:
        return f"{path} contains the character U+0000 (NUL), which PostgreSQL can't store: remove it"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return f"{path} contains a lone surrogate, which is not text: decode it properly, or drop it"
    return None


def _fault_in_enum(value: Enum, path: str) -> str | None:
    return None if json.loads(json.dumps(value)) == value else f"{path} is {_described(value)}"


# Subclasses before their parents: a datetime is a date.
_WAYS_OUT: list[tuple[type, str, str]] = [
    (
        datetime,
        "a datetime",
        "pass value.isoformat() and read it with datetime.fromisoformat() in the task",
    ),
    (date, "a date", "pass value.isoformat() and read it with date.fromisoformat() in the task"),
    (time, "a time", "pass value.isoformat() and read it with time.fromisoformat() in the task"),
    (
        timedelta,
        "a timedelta",
        "pass value.total_seconds() and rebuild it with timedelta(seconds=…) in the task",
    ),
    (UUID, "a UUID", "pass str(value) and rebuild it with UUID(…) in the task"),
    (Decimal, "a Decimal", "pass str(value) and rebuild it with Decimal(…) in the task"),
    (Enum, "an Enum member", "pass value.value"),
    (float, "not a finite number", "JSON has no NaN and no infinity: pass None or a number"),
    (tuple, "a tuple", "it would come back as a list: pass list(value)"),
    (bytes, "bytes", "pass text, for example base64.b64encode(value).decode()"),
    (set, "a set", "pass sorted(value)"),
    (frozenset, "a frozenset", "pass sorted(value)"),
]


def _described(value: Any) -> str:
    for kind, name, way_out in _WAYS_OUT:
        if isinstance(value, kind):
            return f"{name} ({value!r:.80}): {way_out}"
    if hasattr(value, "pk") and hasattr(value, "_meta"):
        return f"a model instance ({type(value).__name__}): pass its primary key and load it in the task"
    if hasattr(value, "_proxy____cast") or hasattr(value, "__html__"):
        return "a lazy text: pass str(value)"
    return (
        f"of type {type(value).__qualname__}, which is not JSON: pass text, numbers, True, False, None, lists and dicts"
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
