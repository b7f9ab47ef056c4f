"""What a person changes about jobs that do not run: their queue, their priority, and whether they are kept at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_reliable_jobs.engine import references
from django_reliable_jobs.engine.deleting import DELETE_OLD_JOBS
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.engine.wakeup import notify_idle

# Row locks in the order of ids; what somebody holds is about to move on, and is left alone.
_AT_REST = """
WITH mine AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job
     WHERE id = ANY(%(ids)s::bigint[]) AND status IN ('SCHEDULED', 'READY', 'WAITING') AND {differs}
     ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE django_reliable_jobs_job job SET {change} FROM mine WHERE job.id = mine.id
RETURNING job.id, CASE WHEN job.status = 'READY' THEN {notify} END
"""
MOVE = _AT_REST.format(
    differs="queue_name <> %(queue)s", change="queue_name = %(queue)s", notify=notify_idle("job.queue_name")
)
REPRIORITISE = _AT_REST.format(differs="priority <> %(priority)s", change="priority = %(priority)s", notify="NULL")

# A child is read by its parent until that has ended.
DELETE = f"""
WITH old AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job job
     WHERE id = ANY(%(ids)s::bigint[]) AND status IN ('SUCCEEDED', 'DEAD', 'CANCELLED') AND {{is_free}}
       AND (job.parent_id IS NULL OR NOT EXISTS (SELECT 1 FROM django_reliable_jobs_job parent
                                                  WHERE parent.id = job.parent_id AND parent.finished_at IS NULL))
     ORDER BY id FOR UPDATE SKIP LOCKED
), {DELETE_OLD_JOBS}
DELETE FROM django_reliable_jobs_job WHERE id IN (SELECT id FROM old) RETURNING id
"""


def move(using: str, job_ids: Sequence[int], queue_name: str) -> list[int]:
    """Put jobs that do not run into another queue; return the ids of those that were moved.

    A job of a running attempt, one that has ended and one that is in the queue already stay as they are.
    """
    return _changed(using, MOVE, ids=sorted(job_ids), queue=queue_name)


def reprioritise(using: str, job_ids: Sequence[int], priority: int) -> list[int]:
    """Give jobs that do not run another priority; return the ids of those that were changed."""
    return _changed(using, REPRIORITISE, ids=sorted(job_ids), priority=priority)


def delete(using: str, job_ids: Sequence[int]) -> list[int]:
    """Delete jobs that have ended, with all that belongs to them; return their ids.

    Kept are those to which a row of the project refers, and children of a job that has not ended.
    """
    free = references.is_free(references.find(using))
    return _changed(using, DELETE.format(is_free=free), ids=sorted(job_ids))


def _changed(using: str, statement: str, **parameters: Any) -> list[int]:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, parameters)
        return sorted(row[0] for row in cursor.fetchall())
