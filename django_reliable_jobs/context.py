"""What a running job sees of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, overload

from django_reliable_jobs.exceptions import Interruption, InvalidCheckpoint, JobTimeout, LeaseLost, Stopping
from django_reliable_jobs.progress import Progress

if TYPE_CHECKING:
    from django.db.models import Manager, Model, QuerySet

    from django_reliable_jobs.batches import Batches

    M = TypeVar("M", bound=Model)
    T = TypeVar("T")

P = ParamSpec("P")
R = TypeVar("R")

OF_BATCHES = "batches:"  # so begin the names of the checkpoints of batches()

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
            case "step":
                return JobTimeout("the step ran longer than its timeout")
            case "lost":
                return LeaseLost("the worker lost its lease; nothing of this attempt is written from here on")
            case "cancel":
                return Stopping("the job was asked to cancel")
        return Stopping("the worker is stopping")


class Port(Protocol):
    """What a context writes through; the worker puts it in."""

    def fenced(self) -> AbstractContextManager[None]: ...
    def save(self, name: str, value: Any) -> None: ...
    def load(self, name: str, default: Any) -> Any: ...
    def batches(self, context: JobContext, source: Any, **options: Any) -> Any: ...


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
    priority: int = 0
    schedule: int | None = None
    slot: datetime | None = None
    _port: Port = field(repr=False)
    _stop: StopFlag = field(default_factory=StopFlag, repr=False)
    _progress: Progress = field(default_factory=Progress, repr=False)

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
        if isinstance(name, str) and name.startswith(OF_BATCHES):
            raise InvalidCheckpoint(f"{name!r:.80}: checkpoints that begin with {OF_BATCHES!r} are those of batches()")
        self._port.save(name, value)

    def load_checkpoint(self, name: str, default: Any = None) -> Any:
        """Return the value that this run of the job saved last under `name`, in any attempt, or `default`."""
        return self._port.load(name, default)

    async def asave_checkpoint(self, name: str, value: Any) -> None:
        """Save a checkpoint from a coroutine, in a transaction of its own. With your writes: `afenced`."""
        await _in_thread(self.save_checkpoint, name, value)

    async def aload_checkpoint(self, name: str, default: Any = None) -> Any:
        """Do what `load_checkpoint` does, from a coroutine."""
        return await _in_thread(self.load_checkpoint, name, default)

    async def afenced(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a plain function inside `fenced()`, from a coroutine, and return what it returns.

        Django's transactions belong to one thread, so what is to commit together is written by one plain function; it
        may save checkpoints too.
        """

        def call() -> R:
            with self.fenced():
                return function(*args, **kwargs)

        return await _in_thread(call)

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        """Tell how far the job has come; a total or message that is left out stays as it was.

        Cheap enough to call for each item: it is kept in memory, and written about once a second with the heartbeat.
        """
        self._progress.say(done, total, message)

    @overload
    def batches(
        self,
        source: QuerySet[M] | Manager[M],
        *,
        size: int = 1000,
        by: str | Sequence[str] = "pk",
        name: str | None = None,
        total: int | None = None,
        max_run_time: float | timedelta | None = None,
    ) -> Batches[M]: ...
    @overload
    def batches(
        self,
        source: Callable[[Any], Iterable[tuple[T, Any]]],
        *,
        size: int = 1000,
        name: str | None = None,
        total: int | None = None,
        max_run_time: float | timedelta | None = None,
    ) -> Batches[T]: ...
    def batches(self, source: Any, **options: Any) -> Any:
        """Go through many rows, or items, batch by batch: `for batch in context.batches(rows):` `with batch:` ...

        The block is one transaction: your writes, how far the job is, and the fence. A later attempt goes on after the
        last batch that was committed; between two batches the job ends if it should (see `raise_if_stopping`).

        - `source`: a QuerySet, gone through in the order of `by` up to the last row that it has when the job first
          comes here; or a function that takes the cursor of the last committed item, None at first, and returns
          (item, cursor) pairs from there on. A cursor is JSON.
        - `by`: a field, or several, that are unique (together) and never NULL.
        - `name` tells several loops of one job apart; `total` is for progress, if you know it better.
        - `max_run_time` (seconds or timedelta): after so long the attempt ends between two batches, uses no attempt,
          and the job goes to the end of its line.

        Raises InvalidBatches, which names the way out, for what can't be gone through exactly once.
        """
        return self._port.batches(self, source, **options)

    def idempotency_key(self, name: str) -> str:
        """Return a key for an outside system: the same in every attempt of a run, different per job, run and name.

        A job of a schedule's slot has its key from schedule, slot and run, so that a slot has one key whatever job
        serves it.
        """
        origin = f"job:{self.id}"
        if self.schedule is not None and self.slot is not None:
            origin = f"slot:{self.schedule}:{self.slot.astimezone(UTC).isoformat()}"
        return hashlib.sha256(f"{origin}:{self.run}:{name}".encode()).hexdigest()[:40]


async def _in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    from asgiref.sync import sync_to_async

    return await sync_to_async(function)(*args, **kwargs)


_current: ContextVar[JobContext | None] = ContextVar("reliable_jobs_current", default=None)


def current_job() -> JobContext:
    """Return the context of the job that this thread or coroutine runs. Raises RuntimeError outside a job."""
    context = _current.get()
    if context is None:
        raise RuntimeError("current_job() works inside a running job only; this code was called outside one")
    return context


def identity() -> tuple[int, str, int] | None:
    """Return id, task and attempt of the current job; None outside a job."""
    context = _current.get()
    return None if context is None else (context.id, context.task_name, context.attempt)


@contextmanager
def entered(context: JobContext) -> Iterator[None]:
    """Make `context` the current job inside the block, in this thread or coroutine."""
    reset = _current.set(context)
    try:
        yield
    finally:
        _current.reset(reset)
