"""Many small jobs at once, for the load."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django_reliable_jobs import exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind


@task(max_attempts=50, backoff=exponential(first=0.2, maximum=2), priority=-20)
def add(one: int, two: int) -> int:
    return one + two


def enqueue(dice: Random) -> Sequence[Job]:
    calls = [{"one": dice.randrange(100), "two": number} for number in range(dice.randint(5, 50))]
    return add.enqueue_many(calls)


KIND = Kind(
    name="bulk",
    weight=5,
    enqueue=enqueue,
    forbidden={
        "a sum is wrong": """
            SELECT id FROM jobs WHERE status = 'SUCCEEDED'
                AND result::text::int IS DISTINCT FROM (kwargs ->> 'one')::int + (kwargs ->> 'two')::int""",
        **MUST_SUCCEED,
    },
)
