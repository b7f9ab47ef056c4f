"""Tasks that run longer than their timeout, in ways that are ever harder to end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

from django.db import connection

from django_reliable_jobs import current_job, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import Kind, leave


@task(max_attempts=20, timeout=1, backoff=exponential(first=0.1, maximum=0.5))
def dawdle(how: str) -> None:
    """Take too long in the first attempt."""
    leave("begin")
    if current_job().attempt > 1:
        return
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        if how == "queries":
            leave("busy")
        elif how == "one query":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(8)")
        time.sleep(0.05)


def enqueue(dice: Random) -> Sequence[Job]:
    return [dawdle.enqueue(dice.choice(["queries", "one query", "python"]))]


KIND = Kind(
    name="timeouts",
    weight=2,
    enqueue=enqueue,
    forbidden={
        "a job that is too slow at first did not succeed at all, or with its first attempt": """
            SELECT id FROM jobs WHERE losses < 5 AND (status <> 'SUCCEEDED' OR attempt < 2)""",
        "no attempt of a slow job failed": """
            SELECT id FROM jobs WHERE status = 'SUCCEEDED' AND NOT EXISTS (
               SELECT 1 FROM django_reliable_jobs_attempt failed
                WHERE failed.job_id = jobs.id AND outcome = 'failed')""",
    },
)
