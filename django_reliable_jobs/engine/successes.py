"""When a schedule last succeeded, kept for its watch beyond the life of the job that tells it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Job

NOTED_EARLY = timedelta(minutes=10)  # before it may be pruned

# While a success is young, its job tells it: nothing is written. Who holds a schedule's row decides it at this moment,
# and is not waited for.
NOTE = """
WITH noted AS MATERIALIZED (
    SELECT schedule.id, success.at FROM django_reliable_jobs_schedule schedule CROSS JOIN LATERAL (
           SELECT max(job.finished_at) AS at FROM django_reliable_jobs_job job
            WHERE job.schedule_id = schedule.id AND job.status = 'SUCCEEDED') success
     WHERE success.at > coalesce(schedule.succeeded_at, '-infinity')
       AND (success.at < coalesce(%(moment)s::timestamptz, clock_timestamp()) - %(age)s::interval + %(early)s::interval
            OR schedule.keep_succeeded = 0)
     ORDER BY schedule.id FOR NO KEY UPDATE OF schedule SKIP LOCKED
)
UPDATE django_reliable_jobs_schedule schedule SET succeeded_at = noted.at FROM noted WHERE schedule.id = noted.id
"""


def note(using: str) -> None:
    """Keep the moment of the last success of schedules whose last succeeded job is about to be pruned."""
    age = settings.retention_of(Job.Status.SUCCEEDED)
    parameters: dict[str, Any] = {"moment": clock.moment(), "age": age, "early": NOTED_EARLY}
    with engine_cursor(using) as cursor:
        cursor.execute(NOTE, parameters)
