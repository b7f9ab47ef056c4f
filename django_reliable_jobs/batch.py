"""Many jobs as one thing, whose end is followed by tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django_reliable_jobs.exceptions import BatchFinished, InvalidTask
from django_reliable_jobs.placement import Placement
from django_reliable_jobs.registry import Task

if TYPE_CHECKING:
    from types import TracebackType

    from django_reliable_jobs.models import Job

Follower = Task[..., Any] | str | None


@dataclass(frozen=True)
class BatchProgress:
    """How many jobs of a batch there are, and how far they have come."""

    total: int
    succeeded: int
    failed: int  # dead or cancelled
    live: int

    @property
    def is_finished(self) -> bool:
        """Whether none is left that has not ended."""
        return self.live == 0


class Batch:
    """Jobs whose end is followed by tasks: `on_success` if all succeeded, `on_failure` if not, `on_finish` always.

    Each is enqueued with `batch_id`, in the transaction that ends the last job. Fill a batch in one transaction, or
    inside `with batch:`, which is one; a batch whose jobs have all ended takes no more (BatchFinished).
    """

    def __init__(
        self,
        *,
        on_success: Follower = None,
        on_failure: Follower = None,
        on_finish: Follower = None,
        database: str | None = None,
    ) -> None:
        given = {"on_success": on_success, "on_failure": on_failure, "on_finish": on_finish}
        self._followers = {name: _name_of(name, follower) for name, follower in given.items()}
        self._database = database
        self._atomic: Any = None
        self._id_before: int | None = None
        self.id: int | None = None  # known when the first job is enqueued

    @classmethod
    def get(cls, batch_id: int, *, database: str | None = None) -> Batch:
        """Return a batch by its id, as the tasks that follow it are given it."""
        batch = cls(database=database)
        batch.id = batch_id
        return batch

    def enqueue(self, task: Task[..., Any] | Placement[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a job as one of this batch, in the caller's transaction."""
        from django.db import transaction

        from django_reliable_jobs.engine import enqueue

        with transaction.atomic(using=self._using()):
            return enqueue.enqueue(self._own(task), args, kwargs)

    def enqueue_many(self, task: Task[..., Any] | Placement[..., Any], calls: Iterable[Mapping[str, Any]]) -> list[Job]:
        """Enqueue a job for each dict of keyword arguments as one of this batch, in the caller's transaction.

        A batch that got no job at all has ended at once.
        """
        from django.db import transaction

        from django_reliable_jobs.engine import endings_of_jobs, enqueue

        with transaction.atomic(using=self._using()):
            jobs = enqueue.enqueue_many(self._own(task), calls)
            if not any(job.created for job in jobs) and self._atomic is None and self.id is not None:
                endings_of_jobs.finish_batches(self._using(), [self.id])
        return jobs

    def progress(self) -> BatchProgress:
        """Count the jobs of the batch."""
        from django_reliable_jobs.engine import families

        counts = families.count(self._using(), self.id) if self.id is not None else {}
        succeeded, total = counts.get("SUCCEEDED", 0), sum(counts.values())
        failed = counts.get("DEAD", 0) + counts.get("CANCELLED", 0)
        return BatchProgress(total=total, succeeded=succeeded, failed=failed, live=total - succeeded - failed)

    def __enter__(self) -> Batch:
        from django.db import transaction

        self._id_before = self.id
        self._atomic = transaction.atomic(using=self._using())
        self._atomic.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from django_reliable_jobs.engine import endings_of_jobs, families

        atomic, self._atomic = self._atomic, None
        try:
            if error is None:
                self.id = self.id or families.create(self._using(), self._followers)
                endings_of_jobs.finish_batches(self._using(), [self.id])
            else:
                self.id = self._id_before  # what was inserted is rolled back
        except BaseException as fault:
            self.id = self._id_before
            atomic.__exit__(type(fault), fault, fault.__traceback__)
            raise
        atomic.__exit__(kind, error, trace)

    def _own(self, task: Task[..., Any] | Placement[..., Any]) -> Placement[..., Any]:
        from django_reliable_jobs.engine import families

        if self.id is None:
            self.id = families.create(self._using(), self._followers)
        elif not families.lock(self._using(), [self.id]):
            raise BatchFinished(f"batch {self.id} has ended: it takes no more jobs")
        placement = task if isinstance(task, Placement) else Placement(task=task)
        return replace(placement, database=self._using(), batch_id=self.id)

    def _using(self) -> str:
        from django_reliable_jobs.engine.transaction import default_database

        return self._database or default_database()


def _name_of(name: str, follower: Follower) -> str | None:
    if follower is None or isinstance(follower, str):
        return follower
    if isinstance(follower, Task):
        return follower.name
    raise InvalidTask(f"Batch({name}=…) takes a task, or the name of one, not {follower!r:.80}")
