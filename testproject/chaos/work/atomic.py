"""Atomic tasks: their effects are there exactly once if the job succeeded, and not at all if it did not."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django_reliable_jobs import exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import Kind, leave, spend


@task(atomic=True, max_attempts=50, backoff=exponential(first=0.2, maximum=2), queue_name="business")
def book(seconds: float) -> dict[str, float]:
    """Write at the begin and at the end of a transaction that takes its time."""
    leave("debit")
    spend(seconds)
    leave("credit")
    return {"seconds": seconds}


def enqueue(dice: Random) -> Sequence[Job]:
    # Most are short; some are about as long as a lease, so that they meet every kind of violence.
    seconds = dice.uniform(0, 0.1) if dice.random() < 0.8 else dice.uniform(0.5, 4)
    return [book.enqueue(round(seconds, 3))]


KIND = Kind(
    name="atomic",
    weight=20,
    enqueue=enqueue,
    forbidden={
        "an atomic job that succeeded has not exactly one debit and one credit": """
            SELECT jobs.id FROM jobs LEFT JOIN effects ON effects.job_id = jobs.id
              WHERE jobs.status = 'SUCCEEDED' GROUP BY jobs.id
             HAVING count(*) FILTER (WHERE name = 'debit') <> 1 OR count(*) FILTER (WHERE name = 'credit') <> 1""",
        "an atomic job that did not succeed has effects": """
            SELECT jobs.id FROM jobs JOIN effects ON effects.job_id = jobs.id WHERE jobs.status <> 'SUCCEEDED'""",
        "an effect of an atomic job is of another claim than the one that succeeded": """
            SELECT jobs.id FROM jobs JOIN effects ON effects.job_id = jobs.id WHERE effects.claim <> jobs.claims""",
    },
)
