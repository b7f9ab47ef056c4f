"""Delayed jobs: never before their moment, whatever the worker's clock says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from random import Random

from django_reliable_jobs import exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind, leave


@task(max_attempts=50, backoff=exponential(first=0.2, maximum=2))
def remind(delay: float) -> None:
    leave("begin")


def enqueue(dice: Random) -> Sequence[Job]:
    delay = round(dice.uniform(0.2, 8), 3)
    return [remind.using(run_after=timedelta(seconds=delay)).enqueue(delay)]


KIND = Kind(
    name="delayed",
    weight=10,
    enqueue=enqueue,
    forbidden={
        "a delayed job began before its moment": """
            SELECT DISTINCT jobs.id FROM jobs JOIN effects ON effects.job_id = jobs.id
              WHERE effects.at < jobs.created_at + make_interval(secs => (jobs.args ->> 0)::float8)""",
        "a delayed job succeeded without an effect": """
            SELECT id FROM jobs WHERE status = 'SUCCEEDED' AND NOT EXISTS (
               SELECT 1 FROM effects WHERE effects.job_id = jobs.id AND effects.claim = jobs.claims)""",
        **MUST_SUCCEED,
    },
)
