"""Scheduled and background jobs for Django on the PostgreSQL that the project already runs.

The names below may be imported from any module, at any time: they need no configured settings and no loaded models.
"""

from __future__ import annotations

from typing import Any

from django_reliable_jobs.batch import Batch
from django_reliable_jobs.children import Child, Children, start_child, start_children, wait_for
from django_reliable_jobs.context import JobContext, current_job
from django_reliable_jobs.declared_schedules import scheduled
from django_reliable_jobs.exceptions import Cancel, Fail, Retry, Snooze
from django_reliable_jobs.limits import Concurrency, Rate
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.registry import Task, task
from django_reliable_jobs.retry import exponential
from django_reliable_jobs.steps import sleep, step, wait_for_event


def emit_event(name: str, payload: Any = None, *, using: str | None = None) -> bool:
    """Emit an event in the caller's transaction: it is there if and only if the caller commits.

    Jobs that wait for it go on, and so does each that comes to wait for it while it is kept (EVENT_RETENTION). The
    first of a name stays: a second one changes nothing and returns False; it waits for the transaction of the first.
    The payload is JSON; raises InvalidArguments for what is not.
    """
    from django_reliable_jobs.engine import events  # loads models, which need settings

    return events.emit(name, payload, using=using)


async def aemit_event(name: str, payload: Any = None, *, using: str | None = None) -> bool:
    """Do what `emit_event` does, from a coroutine."""
    from asgiref.sync import sync_to_async

    return await sync_to_async(emit_event)(name, payload, using=using)


__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Cancel",
    "Child",
    "Children",
    "Concurrency",
    "Cron",
    "Every",
    "Fail",
    "JobContext",
    "Once",
    "Rate",
    "Retry",
    "Snooze",
    "Task",
    "aemit_event",
    "current_job",
    "emit_event",
    "exponential",
    "scheduled",
    "sleep",
    "start_child",
    "start_children",
    "step",
    "task",
    "wait_for",
    "wait_for_event",
]
