"""Batches of jobs, and the jobs that wait for them.

The end of the last job of a batch is noticed in the transaction that ends it: it locks the batch's row and then looks,
in a new statement, for jobs of it that live. Two that end at once lock one after the other, and the second sees that
the first has ended. Likewise a job that waits for several batches: its wait's row is locked, then they are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django_reliable_jobs import clock
from django_reliable_jobs.engine.requirements import noting_migrate
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.engine.wakeup import NOTIFY_ANY_IDLE

NO_FOLLOWERS: Mapping[str, str | None] = {"on_success": None, "on_failure": None, "on_finish": None}

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"

CREATE = f"""
INSERT INTO django_reliable_jobs_batch (parent_id, on_success, on_failure, on_finish, created_at)
VALUES (%(parent_id)s, %(on_success)s, %(on_failure)s, %(on_finish)s, {_NOW}) RETURNING id
"""

LOCK = """
SELECT id FROM django_reliable_jobs_batch WHERE id = ANY(%(ids)s::bigint[]) AND finished_at IS NULL
 ORDER BY id FOR UPDATE
"""

# A statement of its own after the lock.
FINISH = f"""
WITH over AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_batch batch WHERE id = ANY(%(ids)s::bigint[]) AND NOT EXISTS (
        SELECT 1 FROM django_reliable_jobs_job job WHERE job.batch_id = batch.id AND job.finished_at IS NULL)
), counted AS (
    SELECT over.id, count(job.id) FILTER (WHERE job.status = 'SUCCEEDED') AS succeeded,
           count(job.id) FILTER (WHERE job.status <> 'SUCCEEDED') AS failed
      FROM over LEFT JOIN django_reliable_jobs_job job ON job.batch_id = over.id GROUP BY over.id
)
UPDATE django_reliable_jobs_batch batch
   SET finished_at = {_NOW}, succeeded = counted.succeeded, failed = counted.failed
  FROM counted WHERE batch.id = counted.id
RETURNING batch.id, batch.parent_id, batch.on_success, batch.on_failure, batch.on_finish, batch.failed
"""

LOCK_WAITS = """
SELECT job_id FROM django_reliable_jobs_wait
 WHERE job_id = ANY(%(ids)s::bigint[]) AND batches IS NOT NULL AND NOT is_satisfied ORDER BY job_id FOR UPDATE
"""

WITH_BATCHES = """
SELECT job_id FROM django_reliable_jobs_wait
 WHERE job_id = ANY(%(ids)s::bigint[]) AND batches IS NOT NULL AND NOT is_satisfied ORDER BY job_id
"""

IS_WAITED_FOR = """EXISTS (
    SELECT 1 FROM jsonb_array_elements_text(wait.batches) AS given(id)
      JOIN django_reliable_jobs_batch batch ON batch.id = given.id::bigint WHERE batch.finished_at IS NULL)"""

# A statement of its own after the lock.
SATISFY = f"""
UPDATE django_reliable_jobs_wait wait SET is_satisfied = true
 WHERE job_id = ANY(%(ids)s::bigint[]) AND batches IS NOT NULL AND NOT is_satisfied AND NOT {IS_WAITED_FOR}
   AND EXISTS (SELECT 1 FROM django_reliable_jobs_job job WHERE job.id = wait.job_id AND job.finished_at IS NULL)
RETURNING job_id, {NOTIFY_ANY_IDLE}
"""

# In two statements, so that the second sees what was finished while the first waited. What children came to is not
# known any more if one of them begins again; what followed a batch of other jobs has followed.
LOCK_CHILDREN_OF = """
SELECT id FROM django_reliable_jobs_batch batch WHERE parent_id IS NOT NULL AND id IN (
       SELECT job.batch_id FROM django_reliable_jobs_job job WHERE job.id = ANY(%(ids)s::bigint[]))
 ORDER BY id FOR UPDATE
"""
REOPEN = """
UPDATE django_reliable_jobs_batch SET finished_at = NULL, succeeded = NULL, failed = NULL
 WHERE id = ANY(%(ids)s::bigint[]) AND finished_at IS NOT NULL RETURNING id
"""

# What was missed, as rows were deleted by hand: batches without a living job, and waits for batches that are over.
FIND_MISSED = """
SELECT batch.id FROM django_reliable_jobs_batch batch WHERE batch.finished_at IS NULL AND NOT EXISTS (
       SELECT 1 FROM django_reliable_jobs_job job WHERE job.batch_id = batch.id AND job.finished_at IS NULL)
 ORDER BY batch.id LIMIT 1000
"""
FIND_WAITING = f"""
SELECT job_id FROM django_reliable_jobs_wait wait
 WHERE batches IS NOT NULL AND NOT is_satisfied AND NOT {IS_WAITED_FOR} ORDER BY job_id LIMIT 10000
"""

PRUNE = f"""
DELETE FROM django_reliable_jobs_batch batch WHERE id IN (
    SELECT id FROM django_reliable_jobs_batch old
     WHERE old.finished_at < {_NOW} - interval '1 day'
       AND NOT EXISTS (SELECT 1 FROM django_reliable_jobs_job job WHERE job.batch_id = old.id)
       AND NOT EXISTS (SELECT 1 FROM django_reliable_jobs_job parent
                        WHERE parent.id = old.parent_id AND parent.finished_at IS NULL)
     LIMIT 1000 FOR UPDATE SKIP LOCKED)
"""

COUNT = """
SELECT job.status, count(*) FROM django_reliable_jobs_job job WHERE job.batch_id = %(id)s GROUP BY job.status
"""

RESULTS = """
SELECT id, status, result::text, reason FROM django_reliable_jobs_job
 WHERE batch_id = ANY(%(ids)s::bigint[]) AND id > %(after)s ORDER BY id LIMIT %(limit)s
"""

LIVE_CHILDREN = """
SELECT job.id FROM django_reliable_jobs_batch batch JOIN django_reliable_jobs_job job ON job.batch_id = batch.id
 WHERE batch.parent_id = ANY(%(ids)s::bigint[]) AND job.finished_at IS NULL
"""


class Finished(NamedTuple):
    """A batch whose last job has ended."""

    id: int
    parent_id: int | None
    on_success: str | None
    on_failure: str | None
    on_finish: str | None
    failed: int

    @property
    def followers(self) -> list[str]:
        """The names of the tasks that follow its end."""
        followers = [self.on_failure if self.failed else self.on_success, self.on_finish]
        return [name for name in followers if name is not None]


class Member(NamedTuple):
    """A job of a batch, and what came of it."""

    job_id: int
    status: str
    result: str | None  # JSON
    reason: str | None


@noting_migrate
def create(using: str, followers: Mapping[str, str | None] = NO_FOLLOWERS, *, parent_id: int | None = None) -> int:
    """Insert a batch in the current transaction; return its id."""
    given = {**NO_FOLLOWERS, **followers}
    return int(_rows(using, CREATE, parent_id=parent_id, **given)[0][0])


def lock(using: str, batch_ids: Sequence[int]) -> set[int]:
    """Lock these batches until the transaction ends; return those that have not finished."""
    return {batch_id for (batch_id,) in _rows(using, LOCK, ids=list(batch_ids))}


def finish(using: str, batch_ids: Sequence[int]) -> list[Finished]:
    """Finish, in the current transaction, those of these batches that have no living job; wake who waits for them."""
    open_ids = lock(using, batch_ids)
    if not open_ids:
        return []
    finished = [Finished._make(row) for row in _rows(using, FINISH, ids=sorted(open_ids))]
    parents = sorted({each.parent_id for each in finished if each.parent_id is not None})
    if parents:
        satisfy(using, parents)
    return finished


def reopen(using: str, job_ids: Sequence[int]) -> None:
    """Let who waits for these jobs, as its children, wait for them again. In the transaction that revives them."""
    if ids := [batch_id for (batch_id,) in _rows(using, LOCK_CHILDREN_OF, ids=list(job_ids))]:
        _rows(using, REOPEN, ids=ids)


def satisfy(using: str, job_ids: Sequence[int]) -> int:
    """Mark the waits of these jobs that are over, as no batch is left that they wait for; return how many."""
    waiting = [job_id for (job_id,) in _rows(using, LOCK_WAITS, ids=list(job_ids))]
    return len(_rows(using, SATISFY, ids=waiting)) if waiting else 0


def with_batches(using: str, job_ids: Sequence[int]) -> list[int]:
    """Return those of these jobs that wait for batches."""
    return [job_id for (job_id,) in _rows(using, WITH_BATCHES, ids=list(job_ids))]


def find_missed(using: str) -> list[int]:
    """Return the batches that should have finished."""
    return [batch_id for (batch_id,) in _rows(using, FIND_MISSED)]


def find_waiting(using: str) -> list[int]:
    """Return the jobs that wait for batches, all of which are over."""
    return [job_id for (job_id,) in _rows(using, FIND_WAITING)]


def prune(using: str) -> None:
    """Delete old batches without jobs."""
    with engine_cursor(using) as cursor:
        cursor.execute(PRUNE, {"moment": clock.moment()})


def count(using: str, batch_id: int) -> dict[str, int]:
    """Return how many jobs of a batch have each status."""
    return dict(_rows(using, COUNT, id=batch_id))


def members(using: str, batch_ids: Sequence[int], *, after: int, limit: int) -> list[Member]:
    """Return a page of the jobs of these batches, by id."""
    return [Member._make(row) for row in _rows(using, RESULTS, ids=list(batch_ids), after=after, limit=limit)]


def live_children(using: str, job_ids: Sequence[int]) -> list[int]:
    """Return the ids of the children of these jobs that have not ended."""
    return [job_id for (job_id,) in _rows(using, LIVE_CHILDREN, ids=list(job_ids))]


def _rows(using: str, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, {"moment": clock.moment(), **parameters})
        return list(cursor.fetchall())
