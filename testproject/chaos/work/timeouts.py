"""Tasks that run longer than their timeout, in ways that are ever harder to end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

from django.db import connection

from django_reliable_jobs import current_job, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind, leave, spend


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
        spend(0.05)


def enqueue(dice: Random) -> Sequence[Job]:
    return [dawdle.enqueue(dice.choice(["queries", "one query", "python"]))]


KIND = Kind(
    name="timeouts",
    weight=2,
    enqueue=enqueue,
    forbidden=MUST_SUCCEED,
)
