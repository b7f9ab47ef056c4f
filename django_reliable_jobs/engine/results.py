"""What became of one job: its row, with the attempts that did not succeed and the workers that had it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django_reliable_jobs.arguments import load
from django_reliable_jobs.engine.transaction import engine_cursor

# In one statement: a result is asked for again and again while somebody waits for it.
READ = """
SELECT job.id, job.task, job.queue_name, job.priority, job.args::text, job.kwargs::text, job.status, job.run_after,
       job.created_at, job.first_started_at, job.started_at, job.finished_at, job.result::text, job.reason,
       coalesce((SELECT worker.host || ':' || worker.pid FROM django_reliable_jobs_worker worker
                  WHERE worker.id = job.worker_id), job.worker_id::text),
       (SELECT coalesce(jsonb_agg(jsonb_build_array(attempt.outcome, attempt.worker, attempt.error_class,
                                                    attempt.error_message, attempt.traceback)
                                  ORDER BY attempt.claim), '[]')::text
          FROM django_reliable_jobs_attempt attempt WHERE attempt.job_id = job.id)
  FROM django_reliable_jobs_job job WHERE job.id = %(id)s
"""


class PastAttempt(NamedTuple):
    """An attempt that did not succeed."""

    outcome: str
    worker: str
    error_class: str
    error_message: str
    traceback: str


class JobResult(NamedTuple):
    """A job and its attempts, as they are now."""

    id: int
    task: str
    queue_name: str
    priority: int
    args: list[Any]
    kwargs: dict[str, Any]
    status: str
    run_after: datetime
    created_at: datetime
    first_started_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    result: Any
    reason: str | None
    worker: str | None  # of the last claim
    attempts: list[PastAttempt]


def read(using: str, job_id: int) -> JobResult | None:
    """Return the job of this id with its attempts, or None."""
    with engine_cursor(using) as cursor:
        cursor.execute(READ, {"id": job_id})
        row = cursor.fetchone()
    if row is None:
        return None
    found = JobResult._make(row)
    return found._replace(
        args=load(row[4]),
        kwargs=load(row[5]),
        result=None if found.result is None else load(found.result),
        attempts=[PastAttempt._make(each) for each in load(row[15])],
    )
