"""Schedules declared in code: `@scheduled` above `@task`. Rows follow them at `migrate` and when a scheduler leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import isfunction
from typing import Any, TypeVar

from django_reliable_jobs.exceptions import InvalidSchedule, InvalidTask
from django_reliable_jobs.recurrence import Recurrence
from django_reliable_jobs.registry import Task
from django_reliable_jobs.schedule_options import ScheduleOptions, checked_name
from django_reliable_jobs.spelling import spelt

T = TypeVar("T", bound=Task[..., Any])

ANY_SIZE = (
    2**31
)  # the setting MAX_ARGUMENT_BYTES is looked at when the schedule is written; settings may not be ready here

_declared: dict[str, DeclaredSchedule] = {}


@dataclass(frozen=True, kw_only=True)
class DeclaredSchedule:
    """One declaration: a name, its task and what it says."""

    name: str
    task: Task[..., Any]
    options: ScheduleOptions


@spelt("@scheduled", "@scheduled(Cron('0 2 * * *'), overlap='skip')", InvalidTask)
def scheduled(
    recurrence: Recurrence,
    *,
    name: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    overlap: str = "skip",
    catch_up: str = "latest",
    catch_up_limit: int = 100,
    start_deadline: timedelta | float | None = None,
    jitter: timedelta | float | None = None,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    queue_name: str | None = None,
    priority: int | None = None,
    alert_after: timedelta | float | None = None,
    ping_url: str = "",
    keep_succeeded: int | None = None,
    keep_failed: int | None = None,
) -> Callable[[T], T]:
    """Declare a schedule for a task; stands above `@task`, as often as the task has schedules.

    - `recurrence` is a `Cron`, `Every` or `Once`; `starts_at` and `ends_at` (aware, both included) bound it.
    - `name` is what its row goes by (default: the task's name); `kwargs` are the task's arguments.
    - `overlap` decides when a job of the schedule has not ended at the next slot: `allow`, `skip` the new one, `queue`
      it (one waits, in turn), `replace` the older one (it is cancelled, and the new one starts when it has ended).
    - `catch_up` decides about slots missed while no scheduler ran: `none`, the `latest`, or `all` of them, the newest
      `catch_up_limit`.
    - `start_deadline`: not started so long after its slot, a job is cancelled, and a slot decided later makes none.
    - `jitter` starts each job later than its slot by up to so long; the same for a slot on every host.
    - `queue_name` and `priority` override the task's.
    - `alert_after`: so long without a success is reported; `ping_url`: a monitor outside, such as Healthchecks, hears
      of each start, success and death.
    - `keep_succeeded` and `keep_failed` keep only so many ended jobs of the schedule.

    Spans are timedeltas or seconds. Raises InvalidTask, which names what can't hold.
    """

    given: Any = recurrence
    if isinstance(given, Task) or isfunction(given):
        shown = getattr(given, "__qualname__", repr(given))
        raise InvalidTask(f"{shown}: @scheduled needs to be told when: @scheduled(Every(hours=1)), above @task()")

    def declare(task: T) -> T:
        if not isinstance(task, Task):
            shown = getattr(task, "__qualname__", repr(task))
            raise InvalidTask(
                f"{shown}: @scheduled stands above @task, not below it; write @task() next to the function"
            )
        try:
            options = ScheduleOptions(
                recurrence=recurrence,
                kwargs={} if kwargs is None else kwargs,
                overlap=overlap,
                catch_up=catch_up,
                catch_up_limit=catch_up_limit,
                start_deadline=start_deadline,  # type: ignore[arg-type]
                jitter=jitter,  # type: ignore[arg-type]
                starts_at=starts_at,
                ends_at=ends_at,
                queue_name=queue_name or "",
                priority=priority,
                alert_after=alert_after,  # type: ignore[arg-type]
                ping_url=ping_url,
                keep_succeeded=keep_succeeded,
                keep_failed=keep_failed,
            )
            options.check_task(task, max_bytes=ANY_SIZE)
            declared = DeclaredSchedule(name=checked_name(name or task.name), task=task, options=options)
        except InvalidSchedule as error:
            raise InvalidTask(f"{task.name}: @scheduled: {error}") from None
        _register(declared)
        return task

    return declare


def all_schedules() -> list[DeclaredSchedule]:
    """Return every declared schedule, by name."""
    return [declared for _, declared in sorted(_declared.items())]


def _register(declared: DeclaredSchedule) -> None:
    other = _declared.get(declared.name)
    if other is not None and (other.task.name != declared.task.name or other is declared):
        raise InvalidTask(
            f"two schedules claim the name {declared.name!r}: of {other.task.name} and of {declared.task.name};"
            " give one of them name=…"
        )
    if other is not None and other.options != declared.options:
        raise InvalidTask(f"{declared.task.name} has two schedules of the name {declared.name!r}: give each a name=…")
    _declared[declared.name] = declared
