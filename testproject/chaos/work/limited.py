"""Limits: no more jobs of a key at once than allowed, and no more starts than the rate, at any instant of the run."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django_reliable_jobs import Concurrency, Rate, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import MUST_SUCCEED, Kind, leave, spend

CUSTOMERS = 6


@task(concurrency=3, max_attempts=50, backoff=exponential(first=0.2, maximum=2))
def export(seconds: float) -> None:
    leave("begin")
    spend(seconds)
    leave("end")


@task(
    concurrency=Concurrency(1, per="customer"),
    rate_limit=Rate("20/s", name="chaos api"),
    max_attempts=50,
    backoff=exponential(first=0.2, maximum=2),
)
def call(customer: int, seconds: float) -> None:
    leave("begin")
    spend(seconds)
    leave("end")


def enqueue(dice: Random) -> Sequence[Job]:
    if dice.random() < 0.5:
        return export.enqueue_many([{"seconds": round(dice.uniform(0, 0.2), 3)} for _ in range(dice.randint(1, 3))])
    return [call.enqueue(dice.randrange(CUSTOMERS), round(dice.uniform(0, 0.1), 3))]


# What is recorded of an attempt lies within the time in which its row was RUNNING; a little is cut off for rounding.
# A key with a colon is that of a customer, one at a time; the other is that of the three exports at once.
_SPANS = """(
    SELECT id, concurrency_key AS key, started_at, finished_at - interval '20 ms' AS finished_at FROM jobs
     WHERE status = 'SUCCEEDED'
     UNION ALL
    SELECT jobs.id, jobs.concurrency_key, attempt.started_at, attempt.finished_at - interval '20 ms' FROM jobs
      JOIN django_reliable_jobs_attempt attempt ON attempt.job_id = jobs.id)"""

_TOO_MANY_AT_ONCE = """
SELECT one.id FROM {spans} one JOIN {spans} other
    ON other.key = one.key AND other.started_at <= one.started_at AND other.finished_at > one.started_at
 GROUP BY one.id, one.key, one.started_at HAVING count(*) > CASE WHEN strpos(one.key, ':') > 0 THEN 1 ELSE 3 END
"""
# Twenty and a burst of twenty.
_TOO_MANY_STARTS = """
SELECT one.id FROM {spans} one JOIN {spans} other
    ON strpos(other.key, ':') > 0 AND other.started_at >= one.started_at
   AND other.started_at < one.started_at + interval '1 second'
 WHERE strpos(one.key, ':') > 0 GROUP BY one.id, one.started_at HAVING count(*) > 42
"""

KIND = Kind(
    name="limited",
    weight=15,
    enqueue=enqueue,
    forbidden={
        "more jobs of a key ran at an instant than its limit allows": _TOO_MANY_AT_ONCE.format(spans=_SPANS),
        "more jobs of a rate started within a second than it allows": _TOO_MANY_STARTS.format(spans=_SPANS),
        **MUST_SUCCEED,
    },
)
