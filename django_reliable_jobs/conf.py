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

from django_reliable_jobs import alert_channels

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
    EVENT_RETENTION: timedelta = timedelta(days=30)  # of events that nobody waits for
    MAX_ARGUMENT_BYTES: int = 256 * 1024
    MAX_RESULT_BYTES: int = 256 * 1024
    MAX_ERROR_CHARACTERS: int = 20_000  # of a stored traceback; its middle is cut
    ALERT_CHANNELS: tuple[Mapping[str, Any], ...] = ()  # where alerts are told of, beside the signals
    ALERT_REPEAT: timedelta | None = timedelta(hours=4)  # an alert that stays open is told of again; None: once
    ALERT_NO_SCHEDULER: timedelta | None = timedelta(minutes=1)  # without a scheduler; None, here and below: no alert
    ALERT_QUEUE_AGE: timedelta | None = timedelta(minutes=10)  # of the job that waits longest in a queue
    ALERT_QUEUE_AGES: Mapping[str, timedelta | None] = field(default_factory=dict)  # of queues that differ, by name
    ALERT_RUN_TIME: timedelta | None = timedelta(hours=24)  # of one attempt
    ALERT_FAILURES: int | None = 3  # jobs of a schedule that died one after another
    ALERT_DEAD_LETTERS: int | None = 1  # jobs of a task that died within an hour
    ALERT_OLD_TRANSACTION: timedelta | None = timedelta(hours=1)  # age of one that holds back vacuum
    ALERT_CLOCK_SECONDS: float | None = 5  # between a host's clock and the database's
    ALERT_RETENTION: timedelta | None = timedelta(days=90)  # of resolved alerts; None: kept
    COUNTER_RETENTION: timedelta | None = timedelta(days=30)  # of the counts of minutes; None: kept
    ALLOW_PRIVATE_ADDRESSES: bool = False  # webhooks and pings to addresses that are not public
    HEALTH_TOKEN: str | None = None  # what a monitor shows to the health view; None: the view is closed
    PREPARE: str = "auto"  # auto: where no transaction pooler is in the way | off
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


def _is_span_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, timedelta) and timedelta() < value <= _LONGEST)


def _is_mapping_of_spans(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and _is_span_or_none(v) for k, v in value.items())


_LONGEST = timedelta(days=36_500)  # so long before now there are moments for PostgreSQL
_SPAN_OR_NONE = "a timedelta of more than 0 and at most 100 years, or None"
_RULES: list[tuple[str, Callable[[Any], bool], str]] = [
    ("ALERT_CHANNELS", alert_channels.are_right, alert_channels.WANTED),
    ("ALERT_REPEAT", _is_span_or_none, _SPAN_OR_NONE),
    ("ALERT_NO_SCHEDULER", _is_span_or_none, _SPAN_OR_NONE),
    ("ALERT_QUEUE_AGE", _is_span_or_none, _SPAN_OR_NONE),
    ("ALERT_QUEUE_AGES", _is_mapping_of_spans, "a dict from names of queues to a timedelta or None"),
    ("ALERT_RUN_TIME", _is_span_or_none, _SPAN_OR_NONE),
    ("ALERT_FAILURES", lambda v: v is None or _is_count(v), "a whole number of at least 1, or None"),
    ("ALERT_DEAD_LETTERS", lambda v: v is None or _is_count(v), "a whole number of at least 1, or None"),
    ("ALERT_OLD_TRANSACTION", _is_span_or_none, _SPAN_OR_NONE),
    ("ALERT_CLOCK_SECONDS", lambda v: v is None or (_is_number(v) and v > 0), "a number of seconds, or None"),
    ("ALERT_RETENTION", _is_span_or_none, _SPAN_OR_NONE),
    ("COUNTER_RETENTION", _is_span_or_none, _SPAN_OR_NONE),
    ("ALLOW_PRIVATE_ADDRESSES", lambda v: isinstance(v, bool), "True or False"),
    (
        "HEALTH_TOKEN",
        lambda v: v is None or (isinstance(v, str) and len(v) >= 8),
        "text of 8 characters or more, or None",
    ),
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
        "EVENT_RETENTION",
        lambda v: isinstance(v, timedelta) and v >= timedelta(hours=1),
        "a timedelta of at least an hour",
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
    ("PREPARE", lambda v: v in ("auto", "off"), "'auto' or 'off'"),
    ("LISTEN", lambda v: isinstance(v, str) and v != "", "'auto', 'off' or a DSN"),
    (
        "TASK_MODULES",
        lambda v: isinstance(v, list | tuple) and all(isinstance(each, str) for each in v),
        "a list of dotted module paths",
    ),
]


def _normalized(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(given[key]) for key in ("TASK_MODULES", "ALERT_CHANNELS") if key in given}


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "RELIABLE_JOBS":
        _load.cache_clear()


setting_changed.connect(_forget)
