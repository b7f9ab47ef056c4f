"""How an attempt ends that gives its worker back with the job under way: it waits, or a step of it is tried again."""

from __future__ import annotations

import logging

from django_reliable_jobs.context import JobContext
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.engine.steps import StepPort
from django_reliable_jobs.exceptions import (
    Ending,
    HistoryMismatch,
    Interruption,
    LeaseLost,
    StepFailed,
    Suspension,
)
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes.errors import one_line, stored

logger = logging.getLogger("django_reliable_jobs")

MISMATCH_SECONDS = 60.0  # until other code may have been deployed
TIMED_OUT = "the step ran longer than its timeout"


def raise_if_suspended(port: StepPort) -> None:
    """Raise a suspension that the task has caught, or an ending of a step; warn of steps that it has not asked for."""
    if port.ending is not None:
        logger.warning("job %s has caught what a step of it raised to end it; it ends all the same", port.job_id)
        raise port.ending
    if port.suspension is not None:
        logger.warning("job %s has caught the exception that was to suspend it; it waits all the same", port.job_id)
        raise port.suspension
    if port.replay is not None and port.replay.leftover:
        names = ", ".join(map(repr, port.replay.leftover))
        logger.warning("job %s has ended without asking for steps of its history: %s", port.job_id, names)


def cause_of(port: StepPort, error: BaseException) -> BaseException:
    """Return what ended an attempt: what a step raised to end it, though the task made another error of that."""
    return port.ending if port.ending is not None and isinstance(error, Exception) else error


def outcome_of(context: JobContext, port: StepPort, error: BaseException) -> Outcome | None:
    """Return the outcome of an attempt that suspends its job; None if this is no such end.

    Called when the thread has left the task, so that what a step came to can be written.
    """
    if isinstance(error, HistoryMismatch):
        logger.error("%s", error)
        return _put_off(stored(str(error), 1000), MISMATCH_SECONDS)
    if isinstance(error, Suspension):
        return _suspended(error)
    if port.suspension is not None and not isinstance(error, Interruption | Ending):
        logger.warning("job %s: an error on the way out of its wait is dropped: %s", port.job_id, one_line(error))
        return _suspended(port.suspension)
    if context._stop.reason == "step":
        return _timed_out(port)
    return None


def _suspended(suspension: Suspension) -> Outcome:
    if not suspension.is_waiting:
        return _put_off(suspension.reason, suspension.delay)
    waiting = Job.Status.WAITING.value
    return _put_off(suspension.reason, suspension.delay, status=waiting)


def _timed_out(port: StepPort) -> Outcome:
    running = port.running
    if running is None:  # it ended in the moment in which it was given up
        return _put_off(None, 0.0)
    try:
        return _suspended(running.fail(TimeoutError(TIMED_OUT)))
    except StepFailed as error:  # kept: the next claim runs the task into it
        return _put_off(str(error), 0.0)
    except LeaseLost:
        return _put_off(TIMED_OUT, 0.0)  # not written: the job is somebody else's
    except Exception:
        logger.exception("job %s: that a step was given up could not be written; it is tried again", port.job_id)
        return _put_off(TIMED_OUT, 1.0)


def _put_off(reason: str | None, delay: float, *, status: str | None = None) -> Outcome:
    status = status or (Job.Status.SCHEDULED.value if delay > 0 else Job.Status.READY.value)
    return Outcome(status=status, delay=delay, uses_attempt=False, reason=reason, has_begun=True)
