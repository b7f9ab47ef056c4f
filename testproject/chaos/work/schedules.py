"""Schedules: every slot has one job or a reason, whatever happens to the schedulers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

from django_reliable_jobs import Every, exponential, scheduled, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import Kind, leave, spend

RETRIES = exponential(first=0.2, maximum=2)


@task(max_attempts=50, backoff=RETRIES)
def every_second() -> None:
    leave("every second")


@task(max_attempts=50, backoff=RETRIES)
def in_turn() -> None:
    leave("in turn")
    spend(0.5)


# In the processes of a run, and nowhere else: a project that has this app wants no such jobs.
if os.environ.get("CHAOS_SCHEDULES"):
    scheduled(Every(seconds=1), name="chaos: every second", overlap="allow", catch_up="all", catch_up_limit=1000)(
        every_second
    )
    scheduled(Every(seconds=2), name="chaos: in turn", overlap="queue", catch_up="all", catch_up_limit=5)(in_turn)


def enqueue(dice: Random) -> Sequence[Job]:
    return []  # its jobs are made by schedulers


# The schedules with a slot that was decided, each slot with its row if it has one.
_OF_DUE = """
  SELECT schedule.id
    FROM django_reliable_jobs_schedule schedule
   CROSS JOIN LATERAL generate_series(
         (SELECT min(slot) FROM django_reliable_jobs_slot first WHERE first.schedule_id = schedule.id),
         schedule.decided_until, make_interval(secs => (schedule.recurrence ->> 'seconds')::int)) AS due(at)
    LEFT JOIN django_reliable_jobs_slot slot ON slot.schedule_id = schedule.id AND slot.slot = due.at
   WHERE schedule.name LIKE 'chaos: %%' AND true
"""

KIND = Kind(
    name="schedules",
    weight=0,
    enqueue=enqueue,
    forbidden={
        "a slot has two jobs": """
            SELECT max(id) FROM django_reliable_jobs_job WHERE slot IS NOT NULL
             GROUP BY schedule_id, slot HAVING count(*) > 1""",
        "a job serves a slot that does not know it": """
            SELECT job.id FROM django_reliable_jobs_job job
              LEFT JOIN django_reliable_jobs_slot slot ON slot.schedule_id = job.schedule_id AND slot.slot = job.slot
             WHERE job.slot IS NOT NULL AND slot.job_id IS DISTINCT FROM job.id""",
        "a slot names a job that does not exist": """
            SELECT slot.job_id FROM django_reliable_jobs_slot slot
             WHERE slot.job_id IS NOT NULL AND NOT EXISTS (
                   SELECT 1 FROM django_reliable_jobs_job job WHERE job.id = slot.job_id)""",
        "a decided slot has neither a job nor a reason": _OF_DUE.replace(
            "AND true",
            """
            AND slot.slot IS NULL AND NOT EXISTS (
                   SELECT 1 FROM django_reliable_jobs_slotrange given
                    WHERE given.schedule_id = schedule.id AND due.at BETWEEN given.first AND given.last)""",
        ),
        "a slot of a schedule that catches up with all has no job": _OF_DUE.replace(
            "AND true", "AND schedule.overlap = 'allow' AND slot.outcome IS DISTINCT FROM 'job'"
        ),
    },
)
