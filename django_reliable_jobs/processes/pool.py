"""The threads that run jobs. They share one line, so that a long job holds up no job behind it."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any

from django_reliable_jobs import logs
from django_reliable_jobs.context import StopFlag
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.engine.preparing import keep_sessions
from django_reliable_jobs.exceptions import Interruption
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.event_loop import EventLoop
from django_reliable_jobs.processes.execution import RELEASED, execute
from django_reliable_jobs.processes.reporting import as_text
from django_reliable_jobs.progress import Progress
from django_reliable_jobs.registry import Task

logger = logging.getLogger("django_reliable_jobs")


class HeldJob:
    """A claimed job in the hands of this process. `started` and `ended` are of the monotonic clock."""

    __slots__ = (
        "_interruptible",
        "_mutex",
        "cancel_coroutine",
        "ended",
        "flag",
        "job",
        "outcome",
        "progress",
        "started",
        "thread",
        "was_cancelled",
    )

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.flag = StopFlag()
        self.progress = Progress()
        self.started: float | None = None
        self.ended: float | None = None
        self.outcome: Outcome | None = None
        self.thread: int | None = None
        self.was_cancelled = False  # a query of it was
        self.cancel_coroutine: Callable[[], object] | None = None
        self._interruptible = False
        self._mutex = threading.Lock()

    def cancel_query(self) -> None:
        """Cancel the query that the task waits for."""
        with self._mutex:  # so that the task can't end, and its connection serve another, before the cancel was sent
            if self._interruptible and self.thread is not None and connections.cancel_query(self.thread):
                self.was_cancelled = True

    def cut_connections(self) -> None:
        """Cut the connections of the task's thread: the cancel of its query came to nothing."""
        with self._mutex:
            if self._interruptible and self.thread is not None:
                connections.cut(self.thread)

    def interrupt(self) -> None:
        """Raise the flag's interruption in the code of the task, if that is what runs at this moment."""
        with self._mutex:
            if not self._interruptible:
                return
            if self.cancel_coroutine is not None:
                self.cancel_coroutine()
            elif self.thread is not None:
                _raise_in(self.thread, type(self.flag.interruption()))

    def enter_task(self) -> None:
        self.thread = connections.guard(self.flag, self._uninterrupted)
        self._interruptible = True

    def leave_task(self) -> None:
        """Allow no interruption from here on, and take back one that was sent but has not arrived."""
        while self._interruptible:
            try:
                with self._mutex:
                    self._interruptible = False
                    _raise_in(threading.get_ident(), None)
            except Interruption:  # arrived on the last step: the task has ended all the same
                continue
        connections.unguard()

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        with self._mutex:
            before, self._interruptible = self._interruptible, False
            _raise_in(threading.get_ident(), None)  # it is sent again
        try:
            yield
        finally:
            self._interruptible = before


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    target = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), target)


class Pool:
    """`threads` daemon threads that take held jobs from one line and report each to `report` when it has ended."""

    def __init__(
        self,
        threads: int,
        *,
        using: str,
        report: Callable[[HeldJob], None],
        on_start: Callable[[int], None],
        on_death: Callable[[str, BaseException], None],
    ) -> None:
        self.threads = threads
        self._using = using
        self._report = report
        self._on_start = on_start  # told the token, before anything of the job is done
        self._on_death = on_death
        self._line: SimpleQueue[HeldJob | None] = SimpleQueue()
        self._next: list[HeldJob] = []  # will be in the line
        self._event_loop = EventLoop()
        self._members: list[threading.Thread] = []
        self._pid = 0

    def start(self) -> None:
        self._pid = os.getpid()
        for number in range(self.threads):
            name = f"reliable-jobs-{number + 1}"
            member = threading.Thread(target=self._run, args=(number,), name=name, daemon=True)
            member.start()
            self._members.append(member)

    def submit(self, jobs: Iterable[HeldJob]) -> None:
        """Take in jobs that are to run after the next `hand_out`."""
        self._next += jobs

    def hand_out(self) -> None:
        """Give the threads what was submitted.

        The worker does so when a thread is free, and else when it is about to wait: earlier, the threads would only
        compete with it for the interpreter.
        """
        for held in self._next:
            self._line.put(held)
        self._next.clear()

    def take_back(self) -> list[HeldJob]:
        """Return the held jobs that no thread has started; they will not start."""
        unstarted, self._next = self._next, []
        stops = 0
        with suppress(Empty):
            while True:
                held = self._line.get_nowait()
                if held is None:
                    stops += 1
                else:
                    unstarted.append(held)
        for _ in range(stops):
            self._line.put(None)
        return unstarted

    def stop(self) -> None:
        """Let each thread end after the job that it runs."""
        for _ in self._members:
            self._line.put(None)

    def _run(self, number: int) -> None:
        keep_sessions()
        try:
            while (held := self._line.get()) is not None:
                self._run_job(held)
        except BaseException as error:  # nothing that a task does should get here; if it does, its thread is gone
            self._on_death(f"thread {number + 1}", error)
        finally:
            connections.close_all()

    def _run_job(self, held: HeldJob) -> None:
        if held.flag.reason is not None:  # it need not begin only to be ended
            held.outcome = RELEASED
        else:
            self._on_start(held.job.token)
            connections.make_usable()
            held.started = time.monotonic()
            # A context of its own for each job: what one sets, the next does not see.
            held.outcome = copy_context().run(self._execute, held)
        held.ended = time.monotonic()
        if logger.isEnabledFor(logging.DEBUG):
            _log_end(held)
        self._report(held)

    def _execute(self, held: HeldJob) -> Outcome | None:
        logs.enter(held.job)

        def call(task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
            return _call_interruptibly(held, lambda: self._call(held, task, args, kwargs))

        def leave() -> None:
            left_open = connections.leave_clean(discard=held.was_cancelled)
            if left_open:
                aliases = ", ".join(left_open)
                raise RuntimeError(
                    f"the task left a transaction open on {aliases}; it was rolled back, so its writes are gone"
                )

        return execute(held.job, held.flag, using=self._using, call=call, leave=leave, progress=held.progress)

    def _call(self, held: HeldJob, task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            if task.is_async:
                return self._event_loop.run(task.function, args, kwargs, held=held)
            return task.function(*args, **kwargs)
        finally:
            if os.getpid() != self._pid:  # a fork of the task, come back: it must not go on as a second worker
                os._exit(0)


def _log_end(held: HeldJob) -> None:
    status = held.outcome.status if held.outcome else "replaced"
    seconds = (held.ended or 0) - (held.started or held.ended or 0)
    logger.debug("job %s (%s) %s in %.3f s%s", held.job.id, held.job.task, status, seconds, as_text(held.progress))


_NOTHING = object()


def _call_interruptibly(held: HeldJob, call: Callable[[], Any]) -> Any:
    """Call the task's code; an interruption that arrives when it has returned is too late: the task has won."""
    result: Any = _NOTHING
    try:
        try:
            held.enter_task()
            result = call()
        finally:
            held.leave_task()
    except Interruption:
        held.leave_task()  # the interruption may have arrived before that began
        if result is _NOTHING:
            raise
    return result
