"""Jobs that are cancelled from outside, before or while they run: none comes back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from random import Random

from django_reliable_jobs import current_job, task
from django_reliable_jobs.engine import lifecycle
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job
from testproject.chaos.kind import Kind, leave, spend
from testproject.chaos.models import Cancellation


@task(max_attempts=20)
def export(seconds: float, fails: bool) -> None:
    leave("begin")
    context, deadline = current_job(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        context.raise_if_stopping()
        spend(0.02)
    if fails and context.attempt < 3:
        raise ValueError("once more, unless somebody cancels it")
    leave("end")


def enqueue(dice: Random) -> Sequence[Job]:
    delay = timedelta(seconds=dice.choice([0, 0, 0, 2]))
    return [export.using(run_after=delay).enqueue(round(dice.uniform(0.1, 2), 3), dice.random() < 0.5)]


def cancel_some(dice: Random) -> None:
    live = list(Job.objects.filter(task=export.name, status__in=Job.LIVE).values_list("id", flat=True)[:50])
    chosen = dice.sample(live, min(len(live), 3))
    done = lifecycle.cancel(default_database(), chosen, reason="the monkey said so")
    Cancellation.objects.bulk_create(
        [Cancellation(job_id=job_id, at_once=True) for job_id in done.cancelled]
        + [Cancellation(job_id=job_id, at_once=False) for job_id in done.asked]
    )


KIND = Kind(
    name="cancelled",
    weight=6,
    enqueue=enqueue,
    meddle=cancel_some,
    forbidden={
        "a job that was cancelled at once is not cancelled": """
            SELECT job.id FROM chaos_cancellation wish JOIN django_reliable_jobs_job job ON job.id = wish.job_id
             WHERE wish.at_once AND job.status <> 'CANCELLED'""",
        "a job that was asked to end came back": """
            SELECT job.id FROM chaos_cancellation wish JOIN django_reliable_jobs_job job ON job.id = wish.job_id
             WHERE job.status NOT IN ('CANCELLED', 'SUCCEEDED')""",
        "a job is cancelled, and nobody cancelled it": """
            SELECT id FROM jobs WHERE status = 'CANCELLED' AND id NOT IN (SELECT job_id FROM chaos_cancellation)""",
    },
)
