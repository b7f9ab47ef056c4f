"""Plain tasks: at least once, and the claim that succeeded has run to its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from random import Random

from django_reliable_jobs import current_job, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind, leave, spend
from testproject.chaos.models import Effect


@task(max_attempts=50, backoff=exponential(first=0.2, maximum=2))
def work(seconds: float) -> None:
    leave("begin")
    spend(seconds)
    leave("end")


@task(max_attempts=50, backoff=exponential(first=0.2, maximum=2))
async def work_asynchronously(seconds: float) -> None:
    await _leave("begin")
    await asyncio.sleep(seconds)
    await _leave("end")


async def _leave(name: str) -> None:
    job = current_job()
    await Effect.objects.acreate(name=name, job_id=job.id, claim=job.claims, pid=os.getpid())


def enqueue(dice: Random) -> Sequence[Job]:
    seconds = round(dice.uniform(0, 0.1) if dice.random() < 0.9 else dice.uniform(1, 6), 3)
    priority = dice.choice([0, 0, 0, 10, -10])
    chosen = work if dice.random() < 0.8 else work_asynchronously
    return [chosen.using(priority=priority).enqueue(seconds)]


KIND = Kind(
    name="plain",
    weight=20,
    enqueue=enqueue,
    forbidden={
        "a job succeeded, but the claim that succeeded left no effect at its begin and its end": """
            SELECT jobs.id FROM jobs WHERE jobs.status = 'SUCCEEDED' AND 2 > (
               SELECT count(DISTINCT name) FROM effects
                 WHERE effects.job_id = jobs.id AND effects.claim = jobs.claims)""",
        **MUST_SUCCEED,
    },
)
