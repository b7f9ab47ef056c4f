"""What hangs on the end of jobs, in the transaction that ends them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import transaction

from django_reliable_jobs.arguments import load
from django_reliable_jobs.engine import alerts, enqueue, families
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.models import Alert, Job
from django_reliable_jobs.registry import find

logger = logging.getLogger("django_reliable_jobs")

FOLLOWED = "on_dead_followed"  # in `meta`: the job was dead before, and could not undo all that it did


class Ended(NamedTuple):
    """A job whose attempt ended, or that was cancelled, with its status now: perhaps it has not ended."""

    job_id: int
    status: str
    task: str
    meta: Any = None  # JSON
    batch_id: int | None = None
    compensation: str | None = None  # what the attempt came to that was to undo


def ended(using: str, jobs: Sequence[Ended]) -> None:
    """Do what follows the end of those that have ended: `on_dead` tasks, alerts, the ends of their batches."""
    for job in jobs:
        meta = load(job.meta) if job.status == Job.Status.DEAD and job.meta else {}
        if (on_dead := meta.get("on_dead")) and FOLLOWED not in meta:
            follow(using, on_dead, {"job_id": job.job_id}, cause=f"job {job.job_id} is dead")
        if job.compensation == Job.Compensation.FAILED:
            message = (
                f"Job {job.job_id} could not undo all that it did: see `manage.py jobs show {job.job_id}`. When the"
                f" cause is mended, `manage.py jobs retry --undo {job.job_id}` goes on where it stopped."
            )
            alerts.note(using, Alert.Kind.UNDO_FAILED, job.task, message)
    batches = {job.batch_id for job in jobs if job.batch_id is not None and job.status in Job.ENDED}
    if batches:
        finish_batches(using, sorted(batches))


def finish_batches(using: str, batch_ids: Sequence[int]) -> None:
    """Finish, in the current transaction, those of these batches whose jobs have all ended."""
    for batch in families.finish(using, batch_ids):
        for task in batch.followers:
            follow(using, task, {"batch_id": batch.id}, cause=f"batch {batch.id} has ended")


def finish_missed(using: str) -> None:
    """Finish batches whose jobs were deleted, or ended without a word, by hand."""
    if missed := families.find_missed(using):
        with short_transaction(using):
            finish_batches(using, missed)


def follow(using: str, task: str, kwargs: dict[str, Any], *, cause: str) -> None:
    """Enqueue a task that follows. If it can't be enqueued, that is logged: what it follows has ended all the same."""
    try:
        with transaction.atomic(using=using):
            enqueue.insert_plain(using, find(task) or task, kwargs)
    except Exception:
        logger.exception("%s, but the task %s that follows can't be enqueued", cause, task)
