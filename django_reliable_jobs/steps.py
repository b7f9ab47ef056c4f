"""Durable work in steps: what has been done is kept, what must be waited for is waited for without a worker.

A task that uses steps is replayed: after a crash, a failure or a wait it runs from its first line, and each step that
it had done before returns at once what it returned then.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar, cast

from django_reliable_jobs import arguments
from django_reliable_jobs.conf import settings
from django_reliable_jobs.context import current_job
from django_reliable_jobs.exceptions import (
    Cancel,
    Ending,
    EventTimeout,
    Fail,
    InvalidCheckpoint,
    InvalidStep,
    KeptFailure,
    StepFailed,
    Suspension,
)
from django_reliable_jobs.replay import Asked, find_function, name_of
from django_reliable_jobs.retry import LONGEST_SPAN, Backoff, RetryPolicy, as_seconds, seconds_until
from django_reliable_jobs.step_port import WRITE_PAUSES, StepPort, StepRecord
from django_reliable_jobs.sync_only import refuse_on_event_loop

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("django_reliable_jobs")

BROKEN_BACKOFF_SECONDS = 60.0
MOST_TRIES = 32_767


def step(
    name: str,
    function: Callable[P, R],
    *args: Any,
    undo: Callable[..., object] | None = None,
    max_attempts: int = 3,
    backoff: Backoff | None = None,
    timeout: float | timedelta | None = None,
    atomic: bool = False,
) -> R:
    """Call `function(*args)` once in this run of the job, keep its result (JSON), and return it in every replay.

    - A failure is tried again, up to `max_attempts` times in all, after `backoff` (default: the task's): that uses no
      attempt of the job. The last failure is kept too: StepFailed, in this and every replay.
    - A process that dies between the call and the keeping of its result makes the call happen again: pass
      `current_job().idempotency_key(name)` to outside systems. With `atomic`, what the function writes to the job's
      database commits together with its result: exactly once.
    - `timeout` (seconds or timedelta) ends a try that runs longer, as a failure.
    - `undo(result, *args)` runs if the job dies or is cancelled later. Both functions are found by their names then, in
      the task's module or in one that it imports. A step that was cut off, or was to be tried again, is called once
      more then, so that what it did is known.

    A name that is used again, as in a loop, is numbered. Raises InvalidStep for what can't hold.
    """
    port = step_port("step", name)
    _check_step(name, function, undo, max_attempts)
    asked = port.ask(name, "step", name_of(function))
    if asked.stored is not None and asked.stored.state == "done":
        return cast(R, arguments.load(asked.stored.value))
    if asked.stored is not None and asked.stored.state == "failed":
        raise StepFailed(asked.name, asked.stored.tries or 1, asked.stored.error or "")
    policy = port.policy if backoff is None else replace(port.policy, backoff=backoff)
    with kept(port):
        running = RunningStep(port, asked, function, args, undo, policy, max_attempts, is_atomic=atomic)
        return cast(R, running.run(as_seconds(timeout)))


def sleep(name: str, span: timedelta | float | datetime) -> None:
    """Give the worker back and go on after `span` (timedelta or seconds), or at an aware datetime; days are fine."""
    port = step_port("sleep", name)
    until = span if isinstance(span, datetime) else as_seconds(span)
    if until is None or (isinstance(until, datetime) and until.tzinfo is None):
        raise InvalidStep(f"sleep({name!r}) takes a timedelta, seconds or an aware datetime, not {span!r}")
    seconds_until(until, datetime.now(UTC))  # raises for what is too far away to be stored
    asked = port.ask(name, "sleep")
    if asked.stored is not None and asked.stored.is_over:
        return
    with kept(port):
        delay = port.sleep(asked.name, until)
    if delay > 0:
        suspend(port, f"sleeps: {name}", delay)


def wait_for_event(name: str, *, timeout: timedelta | float | None = None) -> Any:
    """Give the worker back until the event `name` was emitted; return its payload.

    An event that was emitted before is taken at once. Raises EventTimeout after `timeout` (timedelta or seconds), in
    this and every replay.
    """
    port = step_port("event", name)
    seconds = as_seconds(timeout)
    asked = port.ask(name, "event")
    stored, delay = asked.stored, None
    if stored is None or stored.state == "waiting":
        with kept(port):
            stored, delay = port.wait_for_event(asked.name, name, seconds)
    if stored.state == "waiting":
        suspend(port, f"waits for the event {name}", LONGEST_SPAN if delay is None else max(delay, 0.0))
    if stored.state == "failed":
        raise EventTimeout(name)
    return arguments.load(stored.value)


class RunningStep:
    """A step that is being tried."""

    def __init__(
        self,
        port: StepPort,
        asked: Asked,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        undo: Callable[..., object] | None,
        policy: RetryPolicy,
        max_attempts: int,
        *,
        is_atomic: bool,
    ) -> None:
        self._port = port
        self._function = function
        self._args = args
        self._policy = policy
        self._max_attempts = max_attempts
        self._record = StepRecord(
            name=asked.name,
            function=name_of(function),
            state="done",
            args=_dump_args(asked.name, args) if undo is not None else None,
            undo=name_of(undo) if undo is not None else None,
            is_atomic=is_atomic,
            tries=(asked.stored.tries or 0) if asked.stored is not None else 0,
        )
        self._is_new = asked.stored is None
        self._context = current_job()
        self._started = time.monotonic()

    def run(self, timeout: float | None) -> Any:
        """Try until it succeeds; raises Suspension to be tried again later, StepFailed after the last try."""
        flag, is_atomic = self._context._stop, self._record.is_atomic
        self._context.raise_if_stopping()
        if self._is_new and self._record.undo is not None and not is_atomic:
            self._keep(self._record._replace(state="trying"))  # so that an undo knows of a call that was cut off
        while True:
            self._context.raise_if_stopping()
            self._started = time.monotonic()
            self._port.running = self
            flag.step_deadline = None if timeout is None else self._started + timeout
            try:
                text = self._try_atomically() if is_atomic else self._call()
            except Ending as ending:
                self._choose(ending)
                raise
            except Exception as error:
                self._context.raise_if_stopping()  # the error may come of that
                suspension = self.fail(error)
            else:
                if not is_atomic:
                    self._keep(self._next(value=text))
                self._port.running = None
                return arguments.load(text)
            finally:
                flag.step_deadline = None
                if flag.reason != "step":  # else the worker notes the failed try when the thread is out of here
                    self._port.running = None
            if suspension.delay > 0:
                self._port.suspension = suspension
                raise suspension

    def _choose(self, ending: Ending) -> None:
        """Let an ending act on the job, whoever catches it. One that is for good says that nothing was done."""
        self._port.ending = ending
        if self._record.undo is not None and not self._record.is_atomic and isinstance(ending, Fail | Cancel):
            self._keep(self._next(state="failed", error=arguments.without_bad_characters(_one_line(ending))[:1000]))

    def fail(self, error: BaseException) -> Suspension:
        """Keep a failed try; return for how long the step is put off. Raises StepFailed after the last one."""
        record = self._next(error=arguments.without_bad_characters(_one_line(error))[:1000])
        is_done = isinstance(error, InvalidCheckpoint)  # and what it returned can't be kept
        delay = None if is_done else self._delay(error, record.tries)
        if delay is None:
            is_to_undo = is_done and record.undo is not None and not record.is_atomic
            self._keep(record._replace(state="failed", undo_state="trying" if is_to_undo else None))
            raise StepFailed(record.name, record.tries, record.error or "") from error
        self._keep(record._replace(state="trying"))
        self._record = record
        reason = f"the step {record.name!r} failed, try {record.tries} of {self._max_attempts}: {record.error}"
        logger.warning("job %s: %s; again in %.1f s", self._context.id, reason, delay)
        return Suspension(reason, delay=delay, is_waiting=False)

    def _call(self) -> str:
        return self._dump(self._function(*self._args))

    def _try_atomically(self) -> str:
        with self._port.recording() as record:
            text = self._call()
            record(self._next(value=text))
        return text

    def _keep(self, record: StepRecord) -> None:
        """Write what came of a call that has been made. A connection that was lost meanwhile costs another try."""
        for pause in WRITE_PAUSES:
            if self._port.try_to_record(record):
                return
            time.sleep(pause)
        self._port.record(record)

    def _next(self, **changes: Any) -> StepRecord:
        took = time.monotonic() - self._started
        return self._record._replace(**{"tries": self._record.tries + 1, "took": took, "error": None, **changes})

    def _dump(self, result: Any) -> str:
        task = self._context.task_name
        return arguments.dump_checkpoint(self._record.name, result, task=task, max_bytes=settings.MAX_RESULT_BYTES)

    def _delay(self, error: BaseException, tries: int) -> float | None:
        try:
            return self._policy.delay_after(error, attempt=tries, max_attempts=self._max_attempts)
        except Exception:
            logger.exception("the backoff of the step %r failed; it is tried again after a minute", self._record.name)
            return BROKEN_BACKOFF_SECONDS


def step_port(kind: str, name: str) -> StepPort:
    """Return what the running job writes its steps through. Raises InvalidStep where no step may stand."""
    context = current_job()
    port = cast(StepPort, context._port)
    what = "wait_for_event" if kind == "event" else kind
    refuse_on_event_loop(f"{what}()", f"`await sync_to_async({what})(…)`")
    if port.running is not None:
        raise InvalidStep(f"{what}({name!r}) stands inside another step: steps follow each other, none is in another")
    port.refuse_in_transaction(f"{what}({name!r})")
    if caught := port.ending or port.suspension or port.fault:
        raise caught
    return port


@contextmanager
def kept(port: StepPort) -> Iterator[None]:
    """Let no further step begin after an error of which the history knows nothing: no replay could follow."""
    try:
        yield
    except Exception as error:
        port.fault = None if isinstance(error, KeptFailure) else error
        raise


def suspend(port: StepPort, reason: str, delay: float) -> None:
    """Give the worker back, for so many seconds or until what is waited for."""
    port.suspension = Suspension(reason, delay=delay, is_waiting=True)
    raise port.suspension


def _check_step(name: str, function: Any, undo: Any, max_attempts: Any) -> None:
    if not callable(function):
        raise InvalidStep(f"step({name!r}) takes a function and its arguments, not {function!r:.80}: write"
                          " step(name, function, argument), not step(name, function(argument))")  # fmt: skip
    if inspect.iscoroutinefunction(function):
        raise InvalidStep(f"step({name!r}) takes a plain function; {function.__qualname__} is a coroutine function")
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= MOST_TRIES:
        raise InvalidStep(f"step({name!r}): max_attempts is a whole number from 1 to {MOST_TRIES}")
    module = cast(StepPort, current_job()._port).module
    for needed in () if undo is None else (function, undo):
        if not callable(needed) or find_function(module, name_of(needed)) is not needed:
            raise InvalidStep(
                f"step({name!r}) has an undo, so that a later process must find both functions by their names:"
                f" {name_of(needed)} is not one of the module of the task, nor of a module that it imports"
            )


def _dump_args(name: str, args: tuple[Any, ...]) -> str:
    task = current_job().task_name
    try:
        return arguments.dump_checkpoint(name, list(args), task=task, max_bytes=settings.MAX_RESULT_BYTES)
    except InvalidCheckpoint as error:
        raise InvalidStep(f"the arguments of a step with undo are kept for it, as JSON: {error}") from None


def _one_line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    return " ".join(f"{type(error).__name__}: {text}".split()) if text else type(error).__name__
