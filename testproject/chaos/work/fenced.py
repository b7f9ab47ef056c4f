"""Fenced transactions of a plain task: no attempt that was replaced commits one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django_reliable_jobs import current_job, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind, leave, spend

ROUNDS = 5


@task(max_attempts=50, backoff=exponential(first=0.2, maximum=2), queue_name="business")
def write_fenced(pause: float) -> None:
    context = current_job()
    for item in range(ROUNDS):
        with context.fenced():
            leave("fenced", item)
            spend(pause)


def enqueue(dice: Random) -> Sequence[Job]:
    return [write_fenced.enqueue(round(dice.uniform(0, 0.3), 3))]


KIND = Kind(
    name="fenced",
    weight=5,
    enqueue=enqueue,
    forbidden={
        "an attempt that was replaced committed a fenced transaction": """
            SELECT one.job_id FROM (
               SELECT job_id, claim, max(claim) OVER (PARTITION BY job_id ORDER BY at, id) AS highest FROM effects) one
              WHERE one.claim < one.highest""",
        "the claim that succeeded did not write each round once": """
            SELECT jobs.id FROM jobs WHERE status = 'SUCCEEDED' AND ARRAY(
                SELECT item FROM effects WHERE effects.job_id = jobs.id AND effects.claim = jobs.claims ORDER BY item)
              <> ARRAY(SELECT generate_series(0, 4))""",
        **MUST_SUCCEED,
    },
)
