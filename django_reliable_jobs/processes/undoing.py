"""A job that is to end as DEAD or CANCELLED undoes first what its steps did, newest first."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from django_reliable_jobs import arguments, clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.context import JobContext, entered
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.engine.steps import StepPort, StepToUndo
from django_reliable_jobs.exceptions import Cancel, Fail, Interruption, InvalidCheckpoint, Retry, Snooze
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes.errors import one_line, stored
from django_reliable_jobs.registry import Task
from django_reliable_jobs.replay import find_function
from django_reliable_jobs.retry import seconds_until
from django_reliable_jobs.step_port import WRITE_PAUSES, StepRecord

logger = logging.getLogger("django_reliable_jobs")

FAULT_SECONDS = 5.0
BROKEN_BACKOFF_SECONDS = 60.0
INSIDE = object()  # no step may begin inside an undo
RAN_TOO_LONG = "the undo ran longer than the timeout of its task"

UNDONE = Outcome(status=Job.Status.DEAD.value, compensation=Job.Compensation.DONE.value, uses_attempt=False)
NOT_UNDONE = Outcome(status=Job.Status.DEAD.value, compensation=Job.Compensation.FAILED.value, uses_attempt=False)


class UndoFailed(Exception):
    """An undo used up its tries."""


class TryAgain(Exception):
    """An undo failed and is tried again after `delay` seconds."""

    def __init__(self, delay: float) -> None:
        super().__init__(delay)
        self.delay = delay


def undo(
    task: Task[..., Any],
    job: ClaimedJob,
    context: JobContext,
    port: StepPort,
    *,
    call: Callable[..., Any],
    leave: Callable[[], None],
) -> Outcome:
    """Undo what is left to undo; return the outcome of the attempt. Never raises."""
    undoer = Undoer(task, job, context, port, call)

    def work() -> None:
        try:
            with entered(context):
                undoer.run()
        finally:
            leave()

    outcome = _outcome_of(job, work)
    # Written when the thread is out of the undo, as no query is a safe point then.
    late = undoer.ran_too_long
    return outcome if late is None else _outcome_of(job, lambda: undoer.give_up(late))


def _outcome_of(job: ClaimedJob, work: Callable[[], None]) -> Outcome:
    try:
        work()
    except TryAgain as again:
        return _put_off(again.delay)
    except UndoFailed:
        return NOT_UNDONE
    except Interruption as interruption:
        logger.warning("job %s stops undoing for now: %s", job.id, interruption)
        return _put_off(0.0)
    except BaseException:
        logger.exception("job %s can't go on undoing what it did; it is tried again", job.id)
        return _put_off(FAULT_SECONDS)
    return UNDONE


class Undoer:
    """Undoes the steps of one job, newest first. Each undo is kept when it is done, before the next begins."""

    def __init__(
        self, task: Task[..., Any], job: ClaimedJob, context: JobContext, port: StepPort, call: Callable[..., Any]
    ) -> None:
        self._task = task
        self._job = job
        self._context = context
        self._port = port
        self._call = call
        self._under_way: StepToUndo | None = None

    def run(self) -> None:
        self._port.running = INSIDE  # type: ignore[assignment]
        for each in self._port.steps_to_undo():
            self._context.raise_if_stopping()
            self._under_way = each
            try:
                self._undo(each)
            except Exception as error:
                self._context.raise_if_stopping()
                self._failed(each, error)
            self._under_way = None

    @property
    def ran_too_long(self) -> StepToUndo | None:
        """The step whose undo was ended by the timeout of its task."""
        return self._under_way if self._context._stop.reason == "timeout" else None

    def give_up(self, step: StepToUndo) -> None:
        """Keep that an undo ran too long, as a failed try. Raises TryAgain or UndoFailed."""
        self._failed(step, TimeoutError(RAN_TOO_LONG))
        raise TryAgain(0.0)

    def _undo(self, step: StepToUndo) -> None:
        args = arguments.load(step.args)
        value = step.value if step.state == "done" else self._find_out(step, args)
        if value is None:
            return
        undo = self._find(step.undo)
        if step.is_atomic:
            with transaction.atomic(using=self._context.using):
                self._called(undo, [arguments.load(value), *args])
                self._port.record_undo(step.name, "done", step.undo_tries + 1)
        else:
            self._called(undo, [arguments.load(value), *args])
            self._keep(lambda: self._port.record_undo(step.name, "done", step.undo_tries + 1))
        logger.info("job %s: the step %r is undone", self._job.id, step.name)

    def _find_out(self, step: StepToUndo, args: list[Any]) -> str | None:
        """Call a step again that was cut off, or put off, so that what it did is known; None: it did nothing.

        An error leaves it unknown, unless it says that nothing was done.
        """
        record = StepRecord(step.name, step.function, "done", args=step.args, undo=step.undo, tries=step.tries + 1)
        try:
            result = self._called(self._find(step.function), args)
            text = arguments.dump_checkpoint(
                step.name, result, task=self._task.name, max_bytes=settings.MAX_RESULT_BYTES
            )
        except Exception as error:
            self._context.raise_if_stopping()
            if isinstance(error, InvalidCheckpoint) or not self._says_nothing_was_done(error):
                raise
            logger.info("job %s: the step %r did nothing: %s", self._job.id, step.name, one_line(error))
            self._port.record(record._replace(state="failed", error=stored(one_line(error), 1000)))
            return None
        self._keep(lambda: self._port.record(record._replace(value=text)))
        return text

    def _keep(self, write: Callable[[], object]) -> None:
        """Write what came of a call that has been made. A connection that was lost meanwhile costs another try."""
        for pause in WRITE_PAUSES:
            if self._port.holds(write):
                return
            time.sleep(pause)
        write()

    def _says_nothing_was_done(self, error: Exception) -> bool:
        return isinstance(error, Fail | Cancel) or self._task.retry_policy.is_final(error)

    def _called(self, function: Callable[..., Any], args: list[Any]) -> Any:
        # Through the task's own way to be called, so that it can be interrupted like it.
        return self._call(replace(self._task, function=function, atomic=False), args, {})

    def _find(self, name: str) -> Callable[..., Any]:
        function = find_function(self._port.module, name)
        if function is None:
            raise LookupError(f"{name} is not in the module {self._port.module}, nor in one that it imports")
        return function

    def _failed(self, step: StepToUndo, error: Exception) -> None:
        self._under_way = None
        tries, text = step.undo_tries + (not isinstance(error, Snooze)), stored(one_line(error), 1000)
        is_last = tries >= settings.MAX_ATTEMPTS or isinstance(error, Fail)
        if not self._port.record_undo(step.name, "failed" if is_last else "trying", tries, text):
            logger.warning("job %s: the step %r is undone; after its COMMIT came: %s", self._job.id, step.name, text)
            return
        if is_last:
            logger.error("job %s: the step %r can't be undone: %s", self._job.id, step.name, text, exc_info=error)
            raise UndoFailed(step.name) from error
        delay = self._delay(error, tries)
        logger.warning("job %s: the undo of %r failed: %s; again in %.1f s", self._job.id, step.name, text, delay)
        raise TryAgain(delay) from error

    def _delay(self, error: Exception, tries: int) -> float:
        try:
            if isinstance(error, Retry | Snooze) and error.after is not None:
                return seconds_until(error.after, clock.moment() or timezone.now())
            policy = self._task.retry_policy
            delay = policy.delay_after(error, attempt=tries, max_attempts=settings.MAX_ATTEMPTS)
        except Exception:
            logger.exception("the backoff of %s failed", self._task.name)
            delay = None
        return BROKEN_BACKOFF_SECONDS if delay is None else delay


def _put_off(delay: float) -> Outcome:
    status = Job.Status.SCHEDULED.value if delay > 0 else Job.Status.READY.value
    return Outcome(status=status, delay=delay, uses_attempt=False, has_begun=True)
