"""max_attempts=1: at most once, whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django_reliable_jobs import task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import Kind, leave, spend


@task(max_attempts=1)
def pay(seconds: float) -> None:
    leave("begin")
    spend(seconds)
    leave("end")


def enqueue(dice: Random) -> Sequence[Job]:
    seconds = dice.uniform(0, 0.3) if dice.random() < 0.8 else dice.uniform(2, 8)
    return [pay.enqueue(round(seconds, 3))]


KIND = Kind(
    name="once",
    weight=10,
    enqueue=enqueue,
    forbidden={
        "a job that may be started once was started twice": """
            SELECT job_id FROM effects WHERE name = 'begin' GROUP BY job_id HAVING count(*) > 1""",
        "a job that may be started once succeeded without an effect at its begin and its end": """
            SELECT jobs.id FROM jobs WHERE status = 'SUCCEEDED' AND 2 > (
               SELECT count(DISTINCT name) FROM effects WHERE effects.job_id = jobs.id)""",
    },
)
