"""What a task says about how many of its jobs may run, and start, in the whole fleet: plain values, no database.

A limit has a name, the task's if none is given, and a key for each line that is counted apart: the name alone, or with
`per` the name and arguments of the call (`crm:customer_id=42`). Jobs with one key share one limit, whatever their task.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple, TypeVar

from django_reliable_jobs.exceptions import InvalidTask
from django_reliable_jobs.spelling import spelt_class

MOST = 1_000_000  # jobs at once, starts in a period, starts in a burst
MAX_NAME_BYTES = 100
MAX_KEY_BYTES = 200

CONCURRENCY_FORMS = "a whole number from 1, or Concurrency(3, per=…, name=…)"
RATE_FORMS = (
    'starts in a second, a minute or an hour ("10/s", "600/m", "1000/h"), or Rate("600/m", per=…, name=…, burst=…)'
)

VALUE_FORMS = "jobs at once (5) or starts in a second, a minute or an hour (10/s, 600/m, 1000/h); 0 and 0/s: none"

_PERIODS = {"s": 1, "m": 60, "h": 3600}
_COUNT = re.compile(r"[0-9]{1,9}")
_RATE = re.compile(r"([0-9]{1,9})/([smh])")

Names = str | Sequence[str] | None
L = TypeVar("L", bound="_Limit")


class _Limit:
    kind: ClassVar[str]
    per: tuple[str, ...]
    name: str | None

    def key(self, default_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the key under which a call with these arguments (JSON values by name) is counted."""
        name = self.name or default_name
        if not self.per:
            return name
        text = f"{name}:{','.join(f'{each}={_as_text(arguments[each])}' for each in self.per)}"
        return text if len(text.encode()) <= MAX_KEY_BYTES else _shortened(text)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@spelt_class("Concurrency(3, per='customer_id')", InvalidTask)
@dataclass(frozen=True, init=False)
class Concurrency(_Limit):
    """At most `allowed` jobs at once: of the task, or of all tasks that give this `name`; with `per`, of each value of
    the argument(s) that it names.

    Raises InvalidTask for what can't hold.
    """

    kind = "concurrency"
    allowed: int
    per: tuple[str, ...]
    name: str | None

    def __init__(self, allowed: int, *, per: Names = None, name: str | None = None) -> None:
        if not _is_count(allowed):
            raise InvalidTask(f"concurrency must be {CONCURRENCY_FORMS}, not {allowed!r}")
        self._set(allowed=allowed, per=_as_names("Concurrency", per), name=_as_name("Concurrency", name))

    def __str__(self) -> str:
        return as_text(self.allowed)


@spelt_class("Rate('600/m', burst=20)", InvalidTask)
@dataclass(frozen=True, init=False)
class Rate(_Limit):
    """At most `allowed` starts in `period` seconds, evenly spread but for a `burst` after a rest; `per` and `name` as
    in Concurrency.

    `burst` is one second's worth, at least 1, if not given. Raises InvalidTask for what can't hold.
    """

    kind = "rate"
    allowed: int
    period: int
    burst: int
    per: tuple[str, ...]
    name: str | None

    def __init__(self, rate: str, *, per: Names = None, name: str | None = None, burst: int | None = None) -> None:
        allowed, period = read_rate(rate)
        if allowed < 1:
            raise InvalidTask(f"rate_limit must be {RATE_FORMS}, not {rate!r}")
        if burst is not None and not _is_count(burst):
            raise InvalidTask(f"Rate(burst=…) must be a whole number from 1, not {burst!r}")
        self._set(allowed=allowed, period=period, burst=burst or default_burst(allowed, period))
        self._set(per=_as_names("Rate", per), name=_as_name("Rate", name))

    def __str__(self) -> str:
        return as_text(self.allowed, self.period, self.burst)


def read_rate(text: Any) -> tuple[int, int]:
    """Return "600/m" as (600, 60). Raises InvalidTask, which tells the accepted forms."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found[1]) > MOST:
        raise InvalidTask(f"rate_limit must be {RATE_FORMS}, not {text!r}")
    return int(found[1]), _PERIODS[found[2]]


class Value(NamedTuple):
    """What an operator says instead of the code: `period` is None for jobs at once."""

    allowed: int
    period: int | None

    @property
    def kind(self) -> str:
        return "concurrency" if self.period is None else "rate"


def read_value(text: str) -> Value:
    """Return "5" or "600/m" as a Value; both may be 0. Raises ValueError, which tells the accepted forms."""
    try:
        if _COUNT.fullmatch(text) and int(text) <= MOST:
            return Value(int(text), None)
        return Value(*read_rate(text))
    except InvalidTask:
        raise ValueError(f"{text!r:.40} is no limit: give {VALUE_FORMS}") from None


def as_text(allowed: int, period: int | None = None, burst: int | None = None) -> str:
    """Return "3", or as a rate "600/m", with its burst if that is not the usual one."""
    if period is None or burst is None:
        return str(allowed)
    letter = next(letter for letter, seconds in _PERIODS.items() if seconds == period)
    return f"{allowed}/{letter}" + ("" if burst == default_burst(allowed, period) else f", burst {burst}")


def default_burst(allowed: int, period: int) -> int:
    """Return one second's worth, at least 1."""
    return max(1, allowed // period)


def is_name(value: Any) -> bool:
    """Return whether a limit can have this name: the part of its keys before the colon."""
    return isinstance(value, str) and 0 < len(value.encode(errors="replace")) <= MAX_NAME_BYTES and _is_plain(value)


def checked_concurrency(task: str, value: Any, signature: inspect.Signature) -> Concurrency | None:
    """Return what `@task(concurrency=…)` says as a Concurrency."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = Concurrency(value)
    if value is not None and not isinstance(value, Concurrency):
        raise InvalidTask(f"{task}: concurrency must be {CONCURRENCY_FORMS}, not {value!r}")
    return _fitting(task, "concurrency", value, signature)


def checked_rate(task: str, value: Any, signature: inspect.Signature) -> Rate | None:
    """Return what `@task(rate_limit=…)` says as a Rate."""
    if isinstance(value, str):
        value = Rate(value)
    if value is not None and not isinstance(value, Rate):
        raise InvalidTask(f"{task}: rate_limit must be {RATE_FORMS}, not {value!r}")
    return _fitting(task, "rate_limit", value, signature)


def refuse_contradiction(one: str, mine: Mapping[Any, _Limit], other: str, theirs: Mapping[Any, _Limit]) -> None:
    """Raise InvalidTask if two tasks give one limit different values; both as by kind and name."""
    for kind, name in mine.keys() & theirs.keys():
        if (this := str(mine[kind, name])) != (that := str(theirs[kind, name])):
            raise InvalidTask(
                f"{one} declares the {kind} limit {name!r} as {this}, but {other} as {that}: say the same in both, or"
                " give one of the limits another name"
            )


def _fitting(task: str, option: str, limit: L | None, signature: inspect.Signature) -> L | None:
    if limit is None:
        return None
    if limit.name is None and not is_name(task):
        kind = type(limit).__name__
        raise InvalidTask(
            f"{task}: its name is too long for a limit, or has a colon: give the limit one, {option}={kind}(…, name=…)"
        )
    for name in limit.per:
        if name not in signature.parameters:
            known = ", ".join(signature.parameters) or "none"
            raise InvalidTask(f"{task}: {option} is per argument {name!r}, but the arguments are: {known}")
        default = signature.parameters[name].default
        if default is not inspect.Parameter.empty and not _is_json(default):
            raise InvalidTask(
                f"{task}: {option} is per argument {name!r}, whose default {default!r} is not JSON: give it another"
            )
    return limit


def _as_names(kind: str, per: Any) -> tuple[str, ...]:
    names = () if per is None else (per,) if isinstance(per, str) else per
    if not isinstance(names, Sequence) or not all(isinstance(each, str) and each for each in names):
        raise InvalidTask(f"{kind}(per=…) must be the name of an argument of the task, or several, not {per!r}")
    return tuple(names)


def _as_name(kind: str, name: Any) -> str | None:
    if name is not None and not is_name(name):
        raise InvalidTask(
            f"{kind}(name=…) must be text of 1 to {MAX_NAME_BYTES} printable characters without a colon, not {name!r}"
        )
    return name if name is None else str(name)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _is_plain(text: str) -> bool:
    return text.isprintable() and ":" not in text


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _as_text(value: Any) -> str:
    # A number and its text are one: ids arrive as both.
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _shortened(text: str) -> str:
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{text.encode()[: MAX_KEY_BYTES - len(digest) - 1].decode(errors='ignore')}~{digest}"
