"""The settings: one dict `RELIABLE_JOBS`, every key with a default, unknown keys refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

DEFAULT_RETENTION = {
    "SUCCEEDED": timedelta(days=7),
    "CANCELLED": timedelta(days=7),
    "DEAD": None,
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the project may set; names and units are those of the keys in `RELIABLE_JOBS`."""

    LEASE_SECONDS: float = 30  # a worker that could not renew for so long is replaced
    LEADER_SECONDS: float = 10  # a scheduler that could not renew for so long is followed by another
    POLL_SECONDS: float = 1  # the longest an idle worker sleeps without looking
    MISFIRE_GRACE_SECONDS: float = 60  # a slot decided so late is still on time
    MAX_ATTEMPTS: int = 5  # for tasks that do not say
    MAX_LOSSES: int = 5  # consecutive losses of a job's worker before the job is DEAD
    RETENTION: Mapping[str, timedelta | None] = field(default_factory=lambda: DEFAULT_RETENTION)  # None: kept
    SLOT_RETENTION: timedelta | None = timedelta(days=90)  # of decided slots; None: kept
    MAX_ARGUMENT_BYTES: int = 256 * 1024
    MAX_RESULT_BYTES: int = 256 * 1024
    EVENT_RETENTION: timedelta = timedelta(days=30)  # of events that nobody waits for
    MAX_ERROR_CHARACTERS: int = 20_000  # of a stored traceback; its middle is cut
    LISTEN: str = "auto"  # auto | off | a DSN that reaches PostgreSQL without a transaction pooler
    TASK_MODULES: tuple[str, ...] = ()  # beside the `tasks` module of each installed app

    def retention_of(self, status: str) -> timedelta | None:
        """Return how long ended jobs of this status are kept; None: for ever."""
        return self.RETENTION.get(status, DEFAULT_RETENTION[status])


class _LazySettings:
    """Reads `RELIABLE_JOBS` at first use; a mistake in it raises ImproperlyConfigured there."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_load(), name)


settings: Settings = _LazySettings()  # type: ignore[assignment]


@lru_cache(maxsize=1)
def _load() -> Settings:
    given = getattr(django_settings, "RELIABLE_JOBS", {})
    mistakes = find_mistakes(given)
    if mistakes:
        raise ImproperlyConfigured(" ".join(mistakes))
    return Settings(**{**given, **_normalized(given)})


def task_modules() -> tuple[str, ...]:
    """Return TASK_MODULES, or nothing if `RELIABLE_JOBS` holds a mistake.

    Read while Django starts: a mistake is left to the system checks, which can say it more kindly than a traceback, and
    to the first use of any other setting.
    """
    try:
        return settings.TASK_MODULES
    except ImproperlyConfigured:
        return ()


def find_mistakes(given: Any) -> list[str]:
    """Return a sentence for each mistake in a `RELIABLE_JOBS` value; an empty list if it is right."""
    if not isinstance(given, dict):
        return [f"RELIABLE_JOBS must be a dict, not {type(given).__name__}."]
    known = [each.name for each in fields(Settings)]
    mistakes = [_unknown_key(key, known) for key in given if key not in known]
    for key, is_right, wanted in _RULES:
        if key in given and not is_right(given[key]):
            mistakes.append(f"RELIABLE_JOBS[{key!r}] must be {wanted}, not {given[key]!r}.")
    return mistakes


def _unknown_key(key: Any, known: list[str]) -> str:
    close = get_close_matches(str(key).upper(), known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(known)}."
    return f"RELIABLE_JOBS has no key {key!r}: {hint}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_retention(value: Any) -> bool:
    return isinstance(value, dict) and all(
        key in DEFAULT_RETENTION and (age is None or (isinstance(age, timedelta) and age >= timedelta()))
        for key, age in value.items()
    )


_RULES: list[tuple[str, Callable[[Any], bool], str]] = [
    (
        "LEASE_SECONDS",
        lambda v: _is_number(v) and 1 <= v <= 86_400,
        "a number of seconds between 1 and 86400",
    ),
    (
        "LEADER_SECONDS",
        lambda v: _is_number(v) and 1 <= v <= 86_400,
        "a number of seconds between 1 and 86400",
    ),
    (
        "MISFIRE_GRACE_SECONDS",
        lambda v: _is_number(v) and 1 <= v <= 86_400,
        "a number of seconds between 1 and 86400",
    ),
    (
        "SLOT_RETENTION",
        lambda v: v is None or (isinstance(v, timedelta) and v >= timedelta(days=1)),
        "a timedelta of at least a day, or None (kept for ever)",
    ),
    (
        "POLL_SECONDS",
        lambda v: _is_number(v) and 0.05 <= v <= 60,
        "a number of seconds between 0.05 and 60",
    ),
    ("MAX_ATTEMPTS", lambda v: _is_count(v) and v <= 32_767, "a whole number from 1 to 32767"),
    ("MAX_LOSSES", lambda v: _is_count(v) and v <= 32_767, "a whole number from 1 to 32767"),
    (
        "RETENTION",
        _is_retention,
        "a dict from SUCCEEDED, CANCELLED, DEAD to a timedelta or None (kept for ever)",
    ),
    ("MAX_ARGUMENT_BYTES", _is_count, "a whole number of bytes, at least 1"),
    ("MAX_RESULT_BYTES", _is_count, "a whole number of bytes, at least 1"),
    ("MAX_ERROR_CHARACTERS", lambda v: _is_count(v) and v >= 200, "a whole number, at least 200"),
    ("LISTEN", lambda v: isinstance(v, str) and v != "", "'auto', 'off' or a DSN"),
    (
        "TASK_MODULES",
        lambda v: isinstance(v, list | tuple) and all(isinstance(each, str) for each in v),
        "a list of dotted module paths",
    ),
]


def _normalized(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"TASK_MODULES": tuple(given["TASK_MODULES"])} if "TASK_MODULES" in given else {}


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "RELIABLE_JOBS":
        _load.cache_clear()


setting_changed.connect(_forget)
    (
        "EVENT_RETENTION",
        lambda v: isinstance(v, timedelta) and v >= timedelta(hours=1),
        "a timedelta of at least an hour",
    ),
