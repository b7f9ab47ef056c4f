"""What an error that ended an attempt means for its job."""

from __future__ import annotations

import logging
import traceback
from asyncio import CancelledError
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from django_reliable_jobs import clock, registry
from django_reliable_jobs.conf import settings
from django_reliable_jobs.context import StopFlag
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.exceptions import (
    Cancel,
    Fail,
    Interruption,
    InvalidBatches,
    InvalidResult,
    JobTimeout,
    KeptFailure,
    LeaseLost,
    Retry,
    RunTimeOver,
    Snooze,
    Stopping,
)
from django_reliable_jobs.models import Attempt, Job
from django_reliable_jobs.processes.errors import (
    behind_our_frames,
    chain_of,
    message_of,
    one_line,
    sqlstates_of,
    stored,
    traceback_of,
)
from django_reliable_jobs.retry import as_seconds, seconds_until

logger = logging.getLogger("django_reliable_jobs")

READY, SCHEDULED = Job.Status.READY.value, Job.Status.SCHEDULED.value
DEAD, CANCELLED = Job.Status.DEAD.value, Job.Status.CANCELLED.value

DIED = "job %s (%s) is dead after attempt %s: %s"

INTERRUPTED = Outcome(
    status=READY,
    attempt=Attempt.Outcome.INTERRUPTED.value,
    uses_attempt=False,
    error_message="the worker stopped before the job had ended",
)

CUT_FOR_GOOD = Outcome(
    status=DEAD,
    attempt=Attempt.Outcome.INTERRUPTED.value,
    reason="its worker stopped before it had ended; max_attempts=1 allows no second start",
    error_message="the worker stopped before the job had ended",
)


def judge(task: registry.Task[..., Any], job: ClaimedJob, flag: StopFlag, error: BaseException) -> Outcome:
    """Return the outcome of an attempt that an error has ended. Never raises."""
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)  # what the task had hoarded
    try:
        return _judge(task, job, flag, error)
    except BaseException as fault:  # a Snooze or Retry with a span that is none, an exception that breaks who looks
        return _retry_or_die(task, job, fault)


def cut_off(job: ClaimedJob, flag: StopFlag) -> Outcome:
    """Return the outcome of a job that still runs while its process exits."""
    task = registry.find(job.task)
    if job.is_undoing:
        return INTERRUPTED  # how it is to end is decided: only its undo goes on, elsewhere
    if flag.reason == "shutdown" or flag.reason is None or task is None:
        return _stopped(job)
    return _judge(task, job, flag, flag.interruption())


def unrecordable(error: BaseException) -> Outcome:
    """Return the outcome of a job whose own outcome the database refuses."""
    return _recorded(error, status=DEAD, reason=f"how it ended could not be recorded: {one_line(error)}")


def _stopped(job: ClaimedJob, *, agreed: bool = False) -> Outcome:
    outcome = _interrupted(job, agreed=agreed)
    if outcome is CUT_FOR_GOOD:
        logger.error(DIED, job.id, job.task, job.attempt, outcome.reason)
    return outcome


def _interrupted(job: ClaimedJob, *, agreed: bool = False) -> Outcome:
    # A task that looks, and ends where it looked, has chosen a point from which it can start again.
    return INTERRUPTED if agreed or job.max_attempts > 1 or job.is_undoing else CUT_FOR_GOOD


def _judge(task: registry.Task[..., Any], job: ClaimedJob, flag: StopFlag, error: BaseException) -> Outcome:
    if flag.reason is not None and _is_interruption(error):
        error = flag.interruption().with_traceback(error.__traceback__)
    match error:
        case LeaseLost():
            # Replaced: what follows is not written. Or the lease was nearly lost, and the job is still this worker's.
            logger.warning("job %s (%s) ends: %s", job.id, job.task, error)
            return replace(_interrupted(job), error_message=message_of(error))
        case Stopping():
            if flag.reason == "cancel":
                return _recorded(
                    error, status=CANCELLED, attempt=Attempt.Outcome.CANCELLED, reason="cancelled on request"
                )
            return _stopped(job, agreed=flag.was_seen)
        case RunTimeOver():
            return replace(INTERRUPTED, delay=0.0, error_message=message_of(error))  # due now: behind those that wait
        case Cancel():
            reason = error.reason or "cancelled by its task"
            return _recorded(error, status=CANCELLED, attempt=Attempt.Outcome.CANCELLED, reason=reason)
        case Snooze():
            snoozed = _recorded(
                error,
                status=SCHEDULED,
                attempt=Attempt.Outcome.SNOOZED,
                delay=_seconds_until(error.after),
                uses_attempt=False,
                reason=error.reason,
            )
            return _due_at(snoozed, error.after)
        case Fail():
            logger.warning(DIED, job.id, job.task, job.attempt, reason := error.reason or "failed for good by its task")
            return _recorded(error, status=DEAD, reason=reason)
        case InvalidResult() | InvalidBatches() | KeptFailure():
            return _dead(job, error, str(error))
    return _retry_or_die(task, job, error)


def _is_interruption(error: BaseException) -> bool:
    # Cancelled on the event loop, a query that was cancelled because the flag insists, or what came of an interruption:
    # the driver may be cut in the middle of something, and complain when the blocks around it end.
    chain = chain_of(error)
    return any(isinstance(each, Interruption | CancelledError) for each in chain) or "57014" in sqlstates_of(error)


def _retry_or_die(task: registry.Task[..., Any], job: ClaimedJob, error: BaseException) -> Outcome:
    asked = error.after if isinstance(error, Retry) else None
    reason = (error.reason if isinstance(error, Retry) else "") or one_line(error)
    policy = task.retry_policy
    try:
        if asked is not None:
            delay = _seconds_until(asked) if job.attempt < job.max_attempts else None
        elif isinstance(error, Retry):
            delay = as_seconds(policy.backoff(job.attempt, error)) if job.attempt < job.max_attempts else None
        else:
            delay = policy.delay_after(_as_exception(error), attempt=job.attempt, max_attempts=job.max_attempts)
    except Exception as fault:
        logger.exception("the backoff of %s failed; its job %s is tried again after a minute", task.name, job.id)
        delay, reason = 60.0, f"{reason} (and its backoff failed: {one_line(fault)})"
    if delay is None:
        reason += policy.why_not_again(error) if job.attempt < job.max_attempts and not isinstance(error, Retry) else ""
        return _dead(job, error, reason)
    logger.warning(
        "job %s (%s), attempt %s of %s, failed: %s; again in %.1f s",
        *(job.id, job.task, job.attempt, job.max_attempts, reason, delay),
    )
    return _due_at(_recorded(error, status=SCHEDULED if delay > 0 else READY, delay=delay, reason=reason), asked)


def _dead(job: ClaimedJob, error: BaseException, reason: str) -> Outcome:
    trace = (type(error), error, behind_our_frames(error))
    logger.error(DIED, job.id, job.task, job.attempt, reason, exc_info=trace)
    return _recorded(error, status=DEAD, reason=reason)


def _as_exception(error: BaseException) -> BaseException:
    # SystemExit and KeyboardInterrupt raised by a task end its attempt like any failure, not the worker.
    if isinstance(error, JobTimeout):
        return TimeoutError(message_of(error))
    return error if isinstance(error, Exception) else RuntimeError(one_line(error))


def _due_at(outcome: Outcome, after: float | timedelta | datetime | None) -> Outcome:
    """Return the outcome with the moment that a task named, for the database's clock; this host's may be wrong."""
    if not isinstance(after, datetime):
        return outcome
    return replace(outcome, status=SCHEDULED, run_after=after, delay=0.0)


def _seconds_until(after: float | timedelta | datetime) -> float:
    return seconds_until(after, clock.moment() or timezone.now())


def _recorded(
    error: BaseException,
    *,
    status: str,
    attempt: str = Attempt.Outcome.FAILED.value,
    delay: float | None = None,
    uses_attempt: bool = True,
    reason: str | None = None,
) -> Outcome:
    return Outcome(
        status=status,
        attempt=str(attempt),
        delay=delay,
        uses_attempt=uses_attempt,
        reason=stored(reason, 1000) if reason else None,
        error_class=stored(f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."), 255),
        error_message=stored(message_of(error), settings.MAX_ERROR_CHARACTERS // 4),
        traceback=stored(traceback_of(error), settings.MAX_ERROR_CHARACTERS),
    )
