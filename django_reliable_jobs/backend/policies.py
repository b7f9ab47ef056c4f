"""What may be said of a Task's retries, limits and the rest: in the settings, and in its own decorator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Literal

from django.db import connections

from django_reliable_jobs.limits import Concurrency, Rate
from django_reliable_jobs.registry import Task as OurTask
from django_reliable_jobs.retry import Backoff
from django_reliable_jobs.task_options import OnDuplicate, UniqueRule
from django_reliable_jobs.tasks_framework import Task

# What OPTIONS may say for all Tasks of a backend; the others make sense for one task only.
FOR_ALL = ("max_attempts", "backoff", "retry_on", "give_up_on", "timeout", "expires", "on_dead")
FOR_ONE = (
    *FOR_ALL,
    *("atomic", "unique", "unique_until", "on_duplicate", "concurrency", "rate_limit", "alert_after", "sensitive"),
    "admin_enqueue",
)
OTHER_OPTIONS = ("database", "POLICIES")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliableTask(Task):  # type: ignore[type-arg]  # Django's own is not generic
    """A Task that takes the options of our `@task` in Django's decorator, from Django 6.1 on and in the backport.

    None is nothing said: the settings of the backend decide.
    """

    max_attempts: int | None = None
    backoff: Backoff | None = None
    retry_on: type[BaseException] | Sequence[type[BaseException]] | None = None
    give_up_on: type[BaseException] | Sequence[type[BaseException]] | None = None
    timeout: float | timedelta | None = None
    expires: float | timedelta | None = None
    on_dead: OurTask[..., Any] | Task[..., Any] | str | None = None
    atomic: bool | None = None
    unique: UniqueRule = None
    unique_until: Literal["end", "start"] | None = None
    on_duplicate: OnDuplicate | None = None
    concurrency: int | Concurrency | None = None
    rate_limit: str | Rate | None = None
    alert_after: float | timedelta | None = None
    sensitive: str | Sequence[str] | None = None
    admin_enqueue: bool | None = None

    def __post_init__(self) -> None:
        # By name: with slots, dataclass makes a second class, which super() without arguments does not know.
        Task.__post_init__(self)


def policy_of(task: Task[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of our `@task` for a Task: POLICIES win over its decorator, and that over OPTIONS.

    A task that says nothing is tried once: its author did not know that it might run again.
    """
    said = {name: getattr(task, name, None) for name in FOR_ONE}
    policy = {
        "max_attempts": 1,
        **{name: options[name] for name in FOR_ALL if name in options},
        **{name: value for name, value in said.items() if value is not None},
        **options.get("POLICIES", {}).get(task.module_path, {}),
    }
    if isinstance(policy.get("on_dead"), Task):
        policy["on_dead"] = policy["on_dead"].module_path
    return policy


def find_mistakes(options: Any) -> Iterator[str]:
    """Yield a sentence for each mistake in OPTIONS, but for values, which are checked with the task they are for."""
    if not isinstance(options, Mapping):
        yield f"OPTIONS must be a dict, not {options!r:.80}."
        return
    yield from _unknown("OPTIONS", options, (*FOR_ALL, *OTHER_OPTIONS))
    database = options.get("database")
    if database is not None and database not in connections.settings:
        yield f"OPTIONS['database'] must be one of {', '.join(connections.settings)}, not {database!r}."
    policies = options.get("POLICIES", {})
    if not isinstance(policies, Mapping):
        yield f"OPTIONS['POLICIES'] must be a dict from the path of a task to a dict, not {policies!r:.80}."
        return
    for path, policy in policies.items():
        if isinstance(policy, Mapping):
            yield from _unknown(f"OPTIONS['POLICIES'][{path!r}]", policy, FOR_ONE)
        else:
            yield f"OPTIONS['POLICIES'][{path!r}] must be a dict, not {policy!r:.80}."


def _unknown(place: str, given: Mapping[str, Any], known: Sequence[str]) -> Iterator[str]:
    for key in given:
        if key not in known:
            close = get_close_matches(str(key), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(known)}."
            yield f"{place} has no key {key!r}: {hint}"
