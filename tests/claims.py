"""Claimed jobs in the hands of a test, replaced and ended as the engine would."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_reliable_jobs.engine import exchange, lifecycle, maintenance
from django_reliable_jobs.engine.checkpoints import AttemptPort
from django_reliable_jobs.engine.claim import Arm, ClaimedJob
from django_reliable_jobs.engine.lifecycle import Ending, Outcome
from django_reliable_jobs.models import Job, Worker
from tests.states import a_worker

SUCCESS = Outcome(status="SUCCEEDED", result='"done"')
RETRY = Outcome(status="READY", attempt="failed", delay=0, error_class="ValueError", error_message="it broke")
SNOOZE = Outcome(status="SCHEDULED", attempt="snoozed", delay=60, uses_attempt=False)
DEATH = Outcome(status="DEAD", attempt="failed", reason="it broke")
RELEASE = Outcome(status="READY", uses_attempt=False)


def claim(worker_id: int, limit: int = 1, *, free: int | None = None, alone: bool = True) -> list[ClaimedJob]:
    """Claim ready jobs of the default queue and priority 0, in order."""
    free = limit if free is None else free
    arms = [Arm("default", 0, limit)]
    return exchange.exchange("default", worker_id, [], arms, limit=limit, free=free, alone=alone)[1]


def claim_one_as(pid: int) -> ClaimedJob:
    """Claim one job for a new worker with this process id."""
    [job] = claim(a_worker(pid))
    return job


def end(job: ClaimedJob, outcome: Outcome, **ages: float) -> bool:
    """End an attempt; return whether it was written."""
    return lifecycle.end("default", [Ending(job.id, job.token, outcome, **ages)], worker="host:1") == {job.id}


def succeed(job: ClaimedJob) -> bool:
    """Record a success as an exchange does; return whether it was written."""
    return exchange.exchange("default", 0, [Ending(job.id, job.token, SUCCESS)])[0] == {job.id}


def port_of(job: ClaimedJob) -> AttemptPort:
    return AttemptPort("default", job_id=job.id, token=job.token, run=job.run, task=job.task)


def let_lease_run_out(job: ClaimedJob) -> None:
    """End the lease of the worker that holds the job."""
    worker_id = Job.objects.values_list("worker_id", flat=True).get(pk=job.id)
    Worker.objects.filter(pk=worker_id).update(expires_at=timezone.now() - timedelta(seconds=1))


def replace(job: ClaimedJob) -> ClaimedJob:
    """Have the job rescued and claimed by another worker."""
    let_lease_run_out(job)
    assert maintenance.rescue("default") == 1
    return claim_one_as(2)


def row(job: ClaimedJob | Job) -> Any:
    return Job.objects.get(pk=job.id)
