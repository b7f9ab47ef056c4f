"""Dead letters by what they died of. Writes nothing."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import Exists, OuterRef, QuerySet

from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Attempt, Job

MOST_GROUPED = 10_000  # the newest
NO_ERROR = "-"  # died without an exception: lost, expired, or failed by its own word

GROUPS = f"""
SELECT dead.task, coalesce(nullif(last.error_class, ''), '{NO_ERROR}') AS error, count(*),
       min(dead.finished_at), max(dead.finished_at), max(dead.id),
       (array_agg(coalesce(nullif(last.error_message, ''), dead.reason, '') ORDER BY dead.finished_at DESC))[1]
  FROM (SELECT id, task, claims, finished_at, reason FROM django_reliable_jobs_job
         WHERE status = 'DEAD' AND finished_at IS NOT NULL
         ORDER BY finished_at DESC LIMIT {MOST_GROUPED}) dead
  LEFT JOIN django_reliable_jobs_attempt last ON last.job_id = dead.id AND last.claim = dead.claims
 GROUP BY 1, 2 ORDER BY max(dead.finished_at) DESC
"""


class Group(NamedTuple):
    """Jobs of a task that died of the same error: how many, the first and the last of them, what the newest said."""

    task: str
    error: str
    jobs: int
    first: datetime
    last: datetime
    newest: int
    message: str


def groups(using: str) -> list[Group]:
    """Return the newest dead letters in groups, the one with the newest first."""
    with engine_cursor(using) as cursor:
        cursor.execute(GROUPS)
        return [Group(*row) for row in cursor.fetchall()]


def died_of(jobs: QuerySet[Job], error: str) -> QuerySet[Job]:
    """Narrow to the jobs whose last attempt ended with this class of error, or with none."""
    last = Attempt.objects.filter(job=OuterRef("pk"), claim=OuterRef("claims"))
    if error == NO_ERROR:
        return jobs.exclude(Exists(last.exclude(error_class="")))
    return jobs.filter(Exists(last.filter(error_class=error)))
