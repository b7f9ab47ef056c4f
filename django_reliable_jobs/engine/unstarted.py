"""Jobs of schedules that have not started, or wait to be tried again, and what holds them. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.inspection import IS_ALIVE, SERVES
from django_reliable_jobs.engine.queues import ALL, IS_PAUSED
from django_reliable_jobs.engine.transaction import engine_cursor

WAITS_LONG = timedelta(minutes=10)  # if no setting says how long is long
MOST_LOOKED_AT = 300  # jobs of a schedule

_NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"

# What waits for the end of an earlier job of its schedule waits as the schedule says. Two descents of an index for each
# schedule, none longer than MOST_LOOKED_AT.
WAITING = f"""
SELECT given.id, job.id, job.run_after, job.queue_name, job.attempt, job.max_attempts, job.is_due,
       coalesce(job.reason, ''),
       CASE WHEN EXISTS (SELECT 1 FROM django_reliable_jobs_queue queue
                          WHERE queue.name IN ('{ALL}', job.queue_name) AND {IS_PAUSED}) THEN 'paused'
            WHEN NOT EXISTS (SELECT 1 FROM django_reliable_jobs_worker worker
                              WHERE {IS_ALIVE} AND {SERVES.format("job.queue_name")}) THEN 'unserved'
            ELSE 'in line' END
  FROM unnest(%(ids)s::bigint[]) AS given(id)
 CROSS JOIN LATERAL (
       SELECT * FROM (
           SELECT live.*, live.run_after < {_NOW} - %(long)s::interval AS is_due
             FROM (SELECT id, run_after, queue_name, attempt, max_attempts, reason, serial_key
                     FROM django_reliable_jobs_job job
                    WHERE job.schedule_id = given.id AND job.status IN ('SCHEDULED', 'READY')
                      AND job.compensation <> 'running' LIMIT {MOST_LOOKED_AT}) live) waits
        WHERE (is_due OR attempt > 0)
          AND NOT (serial_key IS NOT NULL AND EXISTS (SELECT 1 FROM django_reliable_jobs_job busy
                                                       WHERE busy.schedule_id = given.id AND busy.status = 'RUNNING'))
        ORDER BY is_due DESC, run_after LIMIT 1) job
"""


class Waiting(NamedTuple):
    """The job of a schedule that waits for longest."""

    job_id: int
    run_after: datetime
    queue_name: str
    attempt: int  # 0: it has not begun
    max_attempts: int
    is_due: bool  # long ago
    reason: str  # why it was put back
    held_by: str  # paused | unserved | in line


def of_schedules(using: str, schedule_ids: Iterable[int]) -> dict[int, Waiting]:
    """Return for each schedule that has one a job that waits for long, or that is to be tried again."""
    long = settings.ALERT_QUEUE_AGE or WAITS_LONG
    parameters: dict[str, Any] = {"ids": list(schedule_ids), "moment": clock.moment(), "long": long}
    with engine_cursor(using) as cursor:
        cursor.execute(WAITING, parameters)
        return {row[0]: Waiting(*row[1:]) for row in cursor.fetchall()}
