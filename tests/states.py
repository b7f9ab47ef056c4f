"""Jobs and workers in the state that a test needs, brought there as the engine would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models.functions import Now

from django_reliable_jobs.engine import exchange, heartbeat
from django_reliable_jobs.engine.claim import Arm
from django_reliable_jobs.models import Job, Worker
from django_reliable_jobs.testing import run_jobs
from tests import tasks


def a_worker(pid: int = 1, *, serves: Sequence[str] | None = None, excluded: Sequence[str] = (), **changes: Any) -> int:
    """Put a worker with two threads on the list; return its id."""
    identity = heartbeat.new_identity("host", pid)
    heartbeat.register("default", identity, queues=serves, excluded=excluded, threads=2)
    if changes:
        Worker.objects.filter(pk=identity.id).update(**changes)
    return identity.id


def claim_one(worker_id: int, queue_name: str = "default") -> int:
    """Claim the first ready job of priority 0; return its id."""
    _, [job] = exchange.exchange("default", worker_id, [], [Arm(queue_name, 0, 1)], limit=1, free=1)
    return job.id


def a_running_job() -> Job:
    """A job in a queue of its own, `running`, held by the worker host:7."""
    job = tasks.nothing.using(queue_name="running").enqueue()
    claim_one(a_worker(7), "running")
    return job


def a_finished_job() -> Job:
    """A job that succeeded; others that are ready run too."""
    job = tasks.nothing.enqueue()
    run_jobs()
    return job


def an_ended_job(**columns: Any) -> Job:
    """The row of a job of a task that nobody declares; it succeeded just now, unless the columns say otherwise."""
    return Job.objects.create(**{"task": "x", "status": "SUCCEEDED", "finished_at": Now(), **columns})


def a_dead_job() -> Job:
    """A job that died without an attempt on record."""
    job = tasks.once.enqueue()
    Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=Now())
    return job


def status_of(job: Job) -> str:
    """The status in the row now."""
    return Job.objects.values_list("status", flat=True).get(pk=job.pk)
