"""The threads that run jobs. They share one line, so that a long job holds up no job behind it."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any

from django_reliable_jobs.context import StopFlag
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.event_loop import EventLoop
from django_reliable_jobs.processes.execution import execute
from django_reliable_jobs.registry import Task


class HeldJob:
    """A claimed job in the hands of this process. `started` and `ended` are of the monotonic clock."""

    __slots__ = ("ended", "flag", "job", "outcome", "started")

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.flag = StopFlag()
        self.started: float | None = None
        self.ended: float | None = None
        self.outcome: Outcome | None = None


class Pool:
    """`threads` daemon threads that take held jobs from one line and report each to `report` when it has ended."""

    def __init__(self, threads: int, *, using: str, report: Callable[[HeldJob], None]) -> None:
        self.threads = threads
        self._using = using
        self._report = report
        self._line: SimpleQueue[HeldJob | None] = SimpleQueue()
        self._event_loop = EventLoop()
        self._members: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(self.threads):
            member = threading.Thread(target=self._run, name=f"reliable-jobs-{number + 1}", daemon=True)
            member.start()
            self._members.append(member)

    def submit(self, held: HeldJob) -> None:
        self._line.put(held)

    def take_back(self) -> list[HeldJob]:
        """Return the held jobs that no thread has started; they will not start."""
        unstarted = []
        while True:
            try:
                held = self._line.get_nowait()
            except Empty:
                return unstarted
            if held is not None:
                unstarted.append(held)

    def stop(self) -> None:
        """Let each thread end after the job that it runs."""
        for _ in self._members:
            self._line.put(None)

    def _run(self) -> None:
        while (held := self._line.get()) is not None:
            connections.make_usable()
            held.started = time.monotonic()
            # A context of its own for each job: what one sets, the next does not see.
            held.outcome = copy_context().run(execute, held.job, held.flag, using=self._using, call=self._call)
            held.ended = time.monotonic()
            self._report(held)
        connections.close_all()

    def _call(self, task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            if inspect.iscoroutinefunction(task.function):
                result = self._event_loop.run(task.function, args, kwargs)
            else:
                result = task.function(*args, **kwargs)
        finally:
            left_open = connections.leave_clean()
        if left_open:
            raise RuntimeError(
                f"the task left a transaction open on {', '.join(left_open)}; it was rolled back, so its writes are gone"
            )
        return result
