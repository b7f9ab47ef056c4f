"""What a running job sees of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from django_reliable_jobs.exceptions import Stopping


class StopFlag:
    """Raised by the worker while a job runs: why it should end at its next safe point, or None."""

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason: Literal["shutdown", "cancel"] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobContext:
    """One attempt of one job, as its task sees it. It is not the row."""

    id: int
    task_name: str
    attempt: int  # from 1; a snooze, a release and a lost worker use none
    max_attempts: int
    claims: int  # rises with every claim and never falls: the fencing number for outside systems
    queue_name: str
    run: int  # rises when an ended job is started over
    using: str  # the database alias that holds the job
    schedule: int | None = None
    slot: datetime | None = None
    _stop: StopFlag = field(default_factory=StopFlag, repr=False)

    @property
    def stopping(self) -> bool:
        """Whether the worker is shutting down or the job was asked to cancel."""
        return self._stop.reason is not None

    def raise_if_stopping(self) -> None:
        """End the attempt here if the worker shuts down (uses no attempt) or the job was asked to cancel."""
        if self.stopping:
            raise Stopping

    def idempotency_key(self, name: str) -> str:
        """Return a key for an outside system: the same in every attempt of a run, different per job, run and name.

        A job of a schedule's slot has its key from schedule, slot and run, so that a slot has one key whatever job serves it.
        """
        slot = f"slot:{self.schedule}:{self.slot.isoformat()}" if self.schedule and self.slot else f"job:{self.id}"
        return hashlib.sha256(f"{slot}:{self.run}:{name}".encode()).hexdigest()[:40]


_current: ContextVar[JobContext | None] = ContextVar("reliable_jobs_current", default=None)


def current_job() -> JobContext:
    """Return the context of the job that this thread or coroutine runs. Raises RuntimeError outside a job."""
    context = _current.get()
    if context is None:
        raise RuntimeError("current_job() works inside a running job only; this code was called outside one")
    return context


@contextmanager
def entered(context: JobContext) -> Iterator[None]:
    """Make `context` the current job inside the block, in this thread or coroutine."""
    reset = _current.set(context)
    try:
        yield
    finally:
        _current.reset(reset)
