"""The options of a task and the choices of a call, with their types and defaults, said once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from django_reliable_jobs.limits import Concurrency, Rate
from django_reliable_jobs.retry import Backoff, exponential

if TYPE_CHECKING:
    from django_reliable_jobs.registry import Task

UniqueRule = bool | str | Sequence[str] | Callable[..., str] | None
UniqueKey = tuple[str, ...] | Callable[..., str] | None  # the rule in its stored form
OnDuplicate = Literal["keep", "replace", "postpone", "raise"]


class Options(TypedDict, total=False):
    """The options of `@task`, but `takes_context`, which decides what type the task has."""

    name: str | None
    aliases: Sequence[str]
    queue_name: str
    priority: int
    max_attempts: int | None
    backoff: Backoff
    retry_on: type[BaseException] | Sequence[type[BaseException]]
    give_up_on: type[BaseException] | Sequence[type[BaseException]]
    timeout: float | timedelta | None
    atomic: bool
    unique: UniqueRule
    unique_until: Literal["end", "start"]
    on_duplicate: OnDuplicate
    concurrency: int | Concurrency | None
    rate_limit: str | Rate | None
    expires: float | timedelta | None
    on_dead: Task[..., Any] | str | None
    alert_after: float | timedelta | None
    sensitive: str | Sequence[str]
    admin_enqueue: bool


class Choices(TypedDict, total=False):
    """What `Task.using()` chooses for the jobs enqueued through it; None is no choice."""

    queue_name: str | None
    priority: int | None
    run_after: datetime | timedelta | None
    unique_key: str | None
    database: str | None


DEFAULTS: Options = {
    "name": None,
    "aliases": (),
    "queue_name": "default",
    "priority": 0,
    "max_attempts": None,
    "backoff": exponential(),
    "retry_on": (Exception,),
    "give_up_on": (),
    "timeout": None,
    "atomic": False,
    "unique": None,
    "unique_until": "end",
    "on_duplicate": "keep",
    "concurrency": None,
    "rate_limit": None,
    "expires": None,
    "on_dead": None,
    "alert_after": None,
    "sensitive": (),
    "admin_enqueue": False,
}
