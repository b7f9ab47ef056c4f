"""A Task of Django's framework as a function that our workers call: its context, its JSON rules, its signals."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from django_reliable_jobs import arguments
from django_reliable_jobs.backend import task_results
from django_reliable_jobs.backend.running_results import RunningResult, result_of_running
from django_reliable_jobs.backend.task_results import STATUSES
from django_reliable_jobs.context import current_job
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.models import Job
from django_reliable_jobs.tasks_framework import (
    Task,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)

if TYPE_CHECKING:
    from django_reliable_jobs.backend.reliable import ReliableBackend

# What runs here, by job and claim, from its start to its outcome.
_running: dict[tuple[int, int], RunningResult] = {}


def as_function(task: Task[..., Any], backend: ReliableBackend) -> Callable[..., Any]:
    """Return the Task's function as a worker calls it.

    Signals are sent on the job's own thread, and a receiver that fails is logged by Django and changes nothing.
    """
    function, alias, sender = task.func, backend.alias, type(backend)

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        context = current_job()
        result = result_of_running(context, task, alias, args, kwargs)
        if task.takes_context and inspect.iscoroutinefunction(function):
            result.read()  # the coroutine could not
        _running[context.id, context.claims] = result
        task_started.send_robust(sender=sender, task_result=result)
        return (TaskContext(task_result=result), *args) if task.takes_context else args

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            return as_json(await function(*await sync_to_async(begin)(args, kwargs), **kwargs))

    else:

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return as_json(function(*begin(args, kwargs), **kwargs))

    # Of the function itself, not of one that it wraps: that is what is called.
    signature = inspect.signature(function, follow_wrapped=False)
    given = list(signature.parameters.values())[1 if task.takes_context else 0 :]
    run.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
    return run


def listener(backend: ReliableBackend) -> Callable[[ClaimedJob, Outcome], None]:
    """Return what sends `task_finished` when an attempt was the job's last one."""
    sender = type(backend)

    def tell(job: ClaimedJob, outcome: Outcome) -> None:
        result = _running.pop((job.id, job.claims), None)
        if result is not None and outcome.status in Job.ENDED:
            _finish(result, outcome)
            task_finished.send_robust(sender=sender, task_result=result)

    return tell


def as_json(value: Any) -> Any:
    """Return a value as it comes back from JSON by the rules of Django's framework.

    Raises its TypeError and ValueError for what it refuses.
    """
    try:
        return json.loads(json.dumps(normalize_json(value)))
    except RecursionError:
        raise InvalidArguments("the value contains itself, or is nested too deeply for JSON") from None


def _finish(result: RunningResult, outcome: Outcome) -> None:
    status = STATUSES[outcome.status]
    changes: dict[str, Any] = {"status": status, "finished_at": timezone.now()}
    if status == TaskResultStatus.SUCCESSFUL:
        changes["_return_value"] = None if outcome.result is None else arguments.load(outcome.result)
    elif outcome.error_class:
        changes["errors"] = [*result.errors, task_results.error_from(outcome.error_class, outcome.traceback)]
    for name, value in changes.items():
        object.__setattr__(result, name, value)
