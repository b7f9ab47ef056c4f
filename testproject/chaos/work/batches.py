"""A hundred items in batches of seven: each batch is written in the transaction of its checkpoint, so each is there
exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from django_reliable_jobs import current_job, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind, leave, spend

ITEMS = 100


def items_after(cursor: int | None) -> Iterator[tuple[int, int]]:
    for item in range(0 if cursor is None else cursor + 1, ITEMS):
        yield item, item


@task(max_attempts=50, backoff=exponential(first=0.2, maximum=2), queue_name="business")
def go_through(pause: float) -> None:
    for batch in current_job().batches(items_after, size=7, total=ITEMS, max_run_time=8 * pause + 0.01):
        with batch:
            for item in batch:
                leave("item", item)
            spend(pause)


def enqueue(dice: Random) -> Sequence[Job]:
    return [go_through.enqueue(round(dice.uniform(0, 0.2), 3))]


KIND = Kind(
    name="batches",
    weight=2,
    enqueue=enqueue,
    forbidden={
        "an item of a batch was written more than once": """
            SELECT job_id FROM effects GROUP BY job_id, item HAVING count(*) > 1""",
        "a job that succeeded has not all the items of its batches": """
            SELECT jobs.id FROM jobs WHERE status = 'SUCCEEDED' AND 100 <> (
                SELECT count(*) FROM effects WHERE effects.job_id = jobs.id)""",
        "what a loop counts as done is not what it wrote": """
            SELECT jobs.id FROM jobs WHERE coalesce((
               SELECT (value ->> 'done')::int FROM django_reliable_jobs_checkpoint saved
                WHERE saved.job_id = jobs.id AND saved.name = 'batches:items_after'), 0)
             <> (SELECT count(*) FROM effects WHERE effects.job_id = jobs.id)""",
        **MUST_SUCCEED,
    },
)
