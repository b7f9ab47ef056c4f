"""What a running job sees of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from django_reliable_jobs.exceptions import Interruption, JobTimeout, LeaseLost, Stopping

if TYPE_CHECKING:
    from django.db.models import Manager, Model, QuerySet

    from django_reliable_jobs.batches import Batches

    M = TypeVar("M", bound=Model)
    T = TypeVar("T")

StopReason = Literal["shutdown", "cancel", "timeout", "step", "lost"]


class StopFlag:
    """Raised by the worker while a job runs: why it should end at its next safe point.

    `insists` makes every query on the job's thread a safe point too. `was_seen`: the task looked, and ended there.
    """

    __slots__ = ("insists", "raised_at", "reason", "step_deadline", "was_seen")

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.raised_at = 0.0  # of the monotonic clock
        self.insists = False
        self.was_seen = False

        self.step_deadline: float | None = None  # of the monotonic clock, while a step with a timeout runs
    def interruption(self) -> Interruption:
        """Return what the job is ended with."""
        match self.reason:
            case "timeout":
                return JobTimeout("the attempt ran longer than its task's timeout")
            case "lost":
            case "step":
                return JobTimeout("the step ran longer than its timeout")
                return LeaseLost("the worker lost its lease; nothing of this attempt is written from here on")
            case "cancel":
                return Stopping("the job was asked to cancel")
        return Stopping("the worker is stopping")


class Port(Protocol):
    """What a context writes through; the worker puts it in."""

    def fenced(self) -> AbstractContextManager[None]: ...
    def save(self, name: str, value: Any) -> None: ...
    def load(self, name: str, default: Any) -> Any: ...


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
    _port: Port = field(repr=False)
    _stop: StopFlag = field(default_factory=StopFlag, repr=False)

    @property
    def stopping(self) -> bool:
        """Whether the attempt should end: shutdown, cancel, timeout, or a lost lease."""
        return self._stop.reason is not None

    def raise_if_stopping(self) -> None:
        """End the attempt here if it should end; a shutdown uses up no attempt."""
        if self._stop.reason is not None:
            self._stop.was_seen = True
            raise self._stop.interruption()

    def fenced(self) -> AbstractContextManager[None]:
        """Run a block in a transaction that commits only while this attempt is the job's current one.

        Business rows that this block writes are written by one attempt at most, also if the worker is paused, replaced
        and woken up. Raises LeaseLost at the end of the block if the attempt was replaced: nothing of the block is
        written.
        """
        return self._port.fenced()

    def save_checkpoint(self, name: str, value: Any) -> None:
        """Save a JSON value that outlives the attempt, in the current transaction: it commits with your writes.

        Fenced: raises LeaseLost if the attempt was replaced. Raises InvalidCheckpoint for a value that is not JSON or
        too large; the earlier value stays.
        """
        self._port.save(name, value)

    def load_checkpoint(self, name: str, default: Any = None) -> Any:
        """Return the value that this run of the job saved last under `name`, in any attempt, or `default`."""
        return self._port.load(name, default)

    def idempotency_key(self, name: str) -> str:
        """Return a key for an outside system: the same in every attempt of a run, different per job, run and name.

        A job of a schedule's slot has its key from schedule, slot and run, so that a slot has one key whatever job
        serves it.
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
