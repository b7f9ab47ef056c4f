"""A task and the choices for jobs about to be enqueued. Needs no settings and no models until one is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from django_reliable_jobs import declaration, signals
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.sync_only import refuse_on_event_loop
from django_reliable_jobs.task_options import Choices

if TYPE_CHECKING:
    from django_reliable_jobs.models import Job
    from django_reliable_jobs.registry import Task

P = ParamSpec("P")
R = TypeVar("R")

# Told the jobs of each call of enqueue in this context, as they are in the caller's transaction.
_listeners: ContextVar[tuple[Callable[[Sequence[Job]], None], ...]] = ContextVar("reliable_jobs_listeners", default=())


@contextmanager
def telling(listener: Callable[[Sequence[Job]], None]) -> Iterator[None]:
    """Tell `listener` the jobs that are enqueued inside the block, call by call."""
    reset = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(reset)


def tell(jobs: Sequence[Job]) -> bool:
    """Tell the listeners of this context that these jobs were enqueued; return whether there are any."""
    listeners = _listeners.get()
    for listener in listeners:
        listener(jobs)
    return bool(listeners)


@dataclass(frozen=True, kw_only=True)
class Placement(Generic[P, R]):
    """A task and the choices for jobs about to be enqueued, made by `Task.using()`."""

    task: Task[P, R]
    queue_name: str | None = None
    priority: int | None = None
    run_after: datetime | timedelta | None = None
    unique_key: str | None = None
    database: str | None = None
    batch_id: int | None = None  # set by the engine
    parent_id: int | None = None

    @cached_property
    def is_plain(self) -> bool:
        """Whether its jobs are due at once, with arguments and nothing else."""
        task = self.task
        of_task = (task.unique, task.concurrency, task.rate_limit, task.on_dead, task.expires)
        of_call = (self.unique_key, self.run_after, self.batch_id, self.parent_id)
        return all(each is None for each in (*of_task, *of_call))

    def using(self, **choices: Unpack[Choices]) -> Placement[P, R]:
        """Return this placement with the given choices replaced. See `Task.using`."""
        declaration.check_choices(self.task.name, choices)
        if choices.get("database") is not None:
            _check_database(self.task.name, choices["database"])
        return replace(self, **{name: value for name, value in choices.items() if value is not None})  # type: ignore[arg-type]

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """See `Task.enqueue`."""
        job = self.insert(*args, **kwargs)
        tell([job])
        return job

    def insert(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue, but leave it to the caller to `tell` the listeners of it."""
        from django_reliable_jobs.engine import enqueue

        refuse_on_event_loop(f"{self.task.name}: enqueue()", "`await ….aenqueue(…)`")
        job = enqueue.enqueue(self, args, kwargs)
        self._announce([job])
        return job

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """See `Task.aenqueue`."""
        from asgiref.sync import sync_to_async

        return await sync_to_async(partial(self.enqueue, *args, **kwargs))()

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job]:
        """See `Task.enqueue_many`."""
        from django_reliable_jobs.engine import enqueue

        refuse_on_event_loop(f"{self.task.name}: enqueue_many()", "`await ….aenqueue_many(…)`")
        jobs = enqueue.enqueue_many(self, calls)
        self._announce(jobs)
        if jobs:
            tell(jobs)
        return jobs

    def _announce(self, jobs: Iterable[Job]) -> None:
        if signals.enqueued.receivers:
            for job in jobs:
                if job.created:
                    signals.send(signals.enqueued, self.task, job=job, using=job._state.db)

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job]:
        """See `Task.aenqueue_many`."""
        from asgiref.sync import sync_to_async

        return await sync_to_async(self.enqueue_many)(calls)


def _check_database(task: str, alias: Any) -> None:
    from django.db import connections

    if not isinstance(alias, str) or alias not in connections.settings:
        known = ", ".join(map(repr, connections.settings))
        raise InvalidArguments(f"{task}: database must be one of {known}, not {alias!r}")
    if (vendor := connections[alias].vendor) != "postgresql":
        raise InvalidArguments(f"{task}: jobs need PostgreSQL, but the database {alias!r} is {vendor}")
