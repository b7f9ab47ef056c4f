"""One claimed job -> Outcome: resolve the task, enter its context, call it, and have judged what came out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django_reliable_jobs import arguments, registry, signals
from django_reliable_jobs.conf import settings
from django_reliable_jobs.context import JobContext, StopFlag, entered
from django_reliable_jobs.engine import atomic
from django_reliable_jobs.engine.children import ChildPort
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.engine.steps import StepPort
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes import suspending, undoing
from django_reliable_jobs.processes.judging import judge
from django_reliable_jobs.progress import Progress

logger = logging.getLogger("django_reliable_jobs")

READY, SCHEDULED = Job.Status.READY.value, Job.Status.SCHEDULED.value
SUCCEEDED, CANCELLED = Job.Status.SUCCEEDED.value, Job.Status.CANCELLED.value

NO_RESULT = Outcome(status=SUCCEEDED)  # the most frequent outcome, made once
RELEASED = Outcome(status=READY, uses_attempt=False)  # never started
CallTask = Callable[[registry.Task[..., Any], list[Any], dict[str, Any]], Any]
RECORDED = Outcome(status=SUCCEEDED, is_recorded=True)


def execute(
    job: ClaimedJob,
    flag: StopFlag,
    *,
    using: str,
    call: CallTask,
    leave: Callable[[], None],
    progress: Progress | None = None,
) -> Outcome:
    """Run one claimed job and return its outcome.

    `call` calls the task's function: in this thread, or on the event loop for coroutines. `leave` puts the thread in
    order afterwards and raises if the task left something behind that undoes its work. Never raises.
    """
    if job.is_late:
        return Outcome(status=CANCELLED, uses_attempt=False, reason="expired: it was not started in time")
    task = registry.find(job.task)
    if task is None:
        return _put_back_unknown(job)
    port = port_of(task, job, using)
    context = context_of(job, flag, using, port, progress or Progress())
    if job.is_undoing:
        return undoing.undo(task, job, context, port, call=call, leave=leave)
    try:
        if signals.started.receivers:
            signals.send(signals.started, task, context=context)
        outcome = _perform(task, job, context, port, call)
    except BaseException as error:
        with suppress(Exception):
            leave()
        cause = suspending.cause_of(port, error)
        outcome = suspending.outcome_of(context, port, cause) or judge(task, job, flag, cause)
        return _told(task, job, outcome, leave)
    try:
        leave()
    except Exception as error:
        return _told(task, job, judge(task, job, flag, error), leave)
    return _told(task, job, outcome, leave)


def _told(task: registry.Task[..., Any], job: ClaimedJob, outcome: Outcome, leave: Callable[[], None]) -> Outcome:
    """Tell the task's own listener the outcome, which it can't change."""
    if task.on_outcome is not None:
        try:
            task.on_outcome(job, outcome)
            leave()
        except BaseException:
            logger.exception("who listens to the task %s failed at the end of its job %s", job.task, job.id)
            with suppress(Exception):
                leave()
    return outcome


def _perform(
    task: registry.Task[..., Any], job: ClaimedJob, context: JobContext, port: StepPort, call: CallTask
) -> Outcome:
    args, kwargs = arguments.load(job.args), arguments.load(job.kwargs)
    if task.takes_context:
        args = [context, *args]
    if not task.atomic:
        with entered(context):
            result = call(task, args, kwargs)
        suspending.raise_if_suspended(port)
        return NO_RESULT if result is None else Outcome(status=SUCCEEDED, result=_dump_result(task, result))
    started = time.monotonic()
    with atomic.succeeding(context.using, job.id, job.token, batch_id=job.batch_id) as record:
        with entered(context):
            result = call(task, args, kwargs)
        text = None if result is None else _dump_result(task, result)
        record(text, time.monotonic() - started)
    return RECORDED if text is None else replace(RECORDED, result=text)


def _dump_result(task: registry.Task[..., Any], result: Any) -> str:
    return arguments.dump_result(result, task=task.name, max_bytes=settings.MAX_RESULT_BYTES)


def call_here(task: registry.Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a task in this thread; a coroutine function on an event loop of its own."""
    if task.is_async:
        from asgiref.sync import async_to_sync

        return async_to_sync(task.function)(*args, **kwargs)
    return task.function(*args, **kwargs)


def port_of(task: registry.Task[..., Any], job: ClaimedJob, using: str) -> StepPort:
    """Return what the context of an attempt writes through."""
    return ChildPort(
        using,
        job_id=job.id,
        token=job.token,
        run=job.run,
        task=job.task,
        policy=task.retry_policy,
        module=task.function.__module__,
        is_atomic=task.atomic,
        is_first_claim=job.claims == 1,
    )


def context_of(job: ClaimedJob, flag: StopFlag, using: str, port: StepPort, progress: Progress) -> JobContext:
    """Return what the task sees of its job."""
    return JobContext(
        id=job.id,
        task_name=job.task,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        claims=job.claims,
        queue_name=job.queue_name,
        run=job.run,
        using=using,
        priority=job.priority,
        schedule=job.schedule_id,
        slot=job.slot,
        _port=port,
        _stop=flag,
        _progress=progress,
    )


def _put_back_unknown(job: ClaimedJob) -> Outcome:
    # Claims that became no attempt grow with every worker that put it back, so the delay does too.
    delay = min(2.0 ** min(job.claims - job.attempt + 1, 9), 300.0)
    logger.error(
        "job %s names the task %r, which this worker does not know; put back for %.0f s. Is the module that declares it"
        " deployed here, and among the `tasks` modules or TASK_MODULES?",
        job.id,
        job.task,
        delay,
    )
    reason = f"no worker that claimed it knows the task {job.task!r}: is the release that declares it deployed?"
    return Outcome(status=SCHEDULED, delay=delay, uses_attempt=False, reason=reason)
