"""A cursor over 100 items: each item is written in the transaction of its checkpoint, so each is there exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django.db import transaction

from django_reliable_jobs import current_job, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind, leave, spend

ITEMS = 100


@task(max_attempts=50, backoff=exponential(first=0.2, maximum=2), queue_name="business")
def walk(pause: float) -> None:
    context = current_job()
    for item in range(context.load_checkpoint("cursor", default=0), ITEMS):
        context.raise_if_stopping()
        with transaction.atomic():
            leave("item", item)
            context.save_checkpoint("cursor", item + 1)
        spend(pause)


def enqueue(dice: Random) -> Sequence[Job]:
    return [walk.enqueue(round(dice.uniform(0, 0.04), 3))]


KIND = Kind(
    name="checkpoints",
    weight=3,
    enqueue=enqueue,
    forbidden={
        "an item was written more than once": """
            SELECT job_id FROM effects GROUP BY job_id, item HAVING count(*) > 1""",
        "a job that succeeded has not all its items": """
            SELECT jobs.id FROM jobs WHERE status = 'SUCCEEDED' AND 100 <> (
                SELECT count(*) FROM effects WHERE effects.job_id = jobs.id)""",
        "the checkpoint and the items disagree": """
            SELECT jobs.id FROM jobs WHERE coalesce((
               SELECT value::text::int FROM django_reliable_jobs_checkpoint saved WHERE saved.job_id = jobs.id), 0)
             <> (SELECT count(*) FROM effects WHERE effects.job_id = jobs.id)""",
        "an earlier claim wrote after a later one": """
            SELECT one.job_id FROM (
               SELECT job_id, claim, max(claim) OVER (PARTITION BY job_id ORDER BY item) AS highest FROM effects) one
              WHERE one.claim < one.highest""",
        **MUST_SUCCEED,
    },
)
