"""Waking who waits. Any process may do it for all.

No wake-up is lost: a waiter writes its wait and WAITING, commits, and then looks for the event in a new statement; who
looks for the waiters of an event does so after it was committed. One of the two sees the other. None comes twice: a
wait is marked as satisfied once, and only a job that is WAITING moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_reliable_jobs import clock
from django_reliable_jobs.engine import families
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.engine.wakeup import notify_idle

BATCH = 1000

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"

# For `claim.look`: is there an event that nobody has looked at, or a job that can go on?
HAS_NEWS = """(
    EXISTS (SELECT 1 FROM django_reliable_jobs_event WHERE is_new)
    OR EXISTS (SELECT 1 FROM django_reliable_jobs_wait wait JOIN django_reliable_jobs_job job ON job.id = wait.job_id
                WHERE wait.is_satisfied AND job.status = 'WAITING'))"""

# A job that has ended does not wait; if it begins again, it looks for itself.
_IS_LIVE = "EXISTS (SELECT 1 FROM django_reliable_jobs_job job WHERE job.id = wait.job_id AND job.finished_at IS NULL)"

# New events are looked at once. A wait that is written later finds its event itself.
JOIN_NEW = f"""
WITH fresh AS MATERIALIZED (
    SELECT id, name FROM django_reliable_jobs_event WHERE is_new ORDER BY id LIMIT %(batch)s FOR UPDATE SKIP LOCKED
), seen AS (
    UPDATE django_reliable_jobs_event event SET is_new = false FROM fresh WHERE event.id = fresh.id
), waiting AS MATERIALIZED (
    SELECT wait.job_id FROM fresh JOIN django_reliable_jobs_wait wait ON wait.event = fresh.name
     WHERE NOT wait.is_satisfied AND {_IS_LIVE} ORDER BY wait.job_id FOR UPDATE OF wait
), satisfied AS (
    UPDATE django_reliable_jobs_wait wait SET is_satisfied = true FROM waiting WHERE wait.job_id = waiting.job_id
)
SELECT (SELECT count(*) FROM fresh), (SELECT count(*) FROM waiting)
"""

# The truth, whatever was missed: every wait whose event is there.
_JOIN = f"""
WITH waiting AS MATERIALIZED (
    SELECT wait.job_id FROM django_reliable_jobs_wait wait
      JOIN django_reliable_jobs_event event ON event.name = wait.event
     WHERE NOT wait.is_satisfied AND {_IS_LIVE} AND {{}} ORDER BY wait.job_id FOR UPDATE OF wait
)
UPDATE django_reliable_jobs_wait wait SET is_satisfied = true FROM waiting WHERE wait.job_id = waiting.job_id
"""
JOIN_ALL = _JOIN.format("wait.event IS NOT NULL")
JOIN_THESE = _JOIN.format("wait.job_id = ANY(%(ids)s::bigint[])")

_PROMOTE = f"""
WITH satisfied AS MATERIALIZED (
    SELECT job.id FROM django_reliable_jobs_wait wait JOIN django_reliable_jobs_job job ON job.id = wait.job_id
     WHERE wait.is_satisfied AND job.status = 'WAITING' AND {{}}
     ORDER BY job.id LIMIT %(batch)s FOR NO KEY UPDATE OF job SKIP LOCKED
), promoted AS (
    UPDATE django_reliable_jobs_job job SET status = 'READY', run_after = {_NOW}
      FROM satisfied WHERE job.id = satisfied.id RETURNING job.queue_name
), queues AS (
    SELECT queue_name, count(*) AS jobs FROM promoted GROUP BY queue_name
)
SELECT jobs, {notify_idle("queues.queue_name")} FROM queues
"""
PROMOTE_SATISFIED = _PROMOTE.format("true")
PROMOTE_THESE = _PROMOTE.format("job.id = ANY(%(ids)s::bigint[])")


def wake(using: str) -> int:
    """Make jobs READY whose event has come, at most one batch of events and one of jobs; return how many."""
    with engine_cursor(using) as cursor:
        cursor.execute(JOIN_NEW, {"batch": BATCH})
    return _promote(using, PROMOTE_SATISFIED, [])


def wake_these(using: str, job_ids: Sequence[int]) -> int:
    """Look for the events of jobs that have just begun to wait, after that was committed; return how many go on."""
    with engine_cursor(using) as cursor:
        cursor.execute(JOIN_THESE, {"ids": list(job_ids)})
    if parents := families.with_batches(using, job_ids):
        with short_transaction(using):
            families.satisfy(using, parents)
    return _promote(using, PROMOTE_THESE, job_ids)


def wake_all(using: str) -> int:
    """Look for the events of every wait; return how many jobs go on."""
    with engine_cursor(using) as cursor:
        cursor.execute(JOIN_ALL)
    if waiting := families.find_waiting(using):
        with short_transaction(using):
            families.satisfy(using, waiting)
    return _promote(using, PROMOTE_SATISFIED, [])


def _promote(using: str, statement: str, job_ids: Sequence[int]) -> int:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, {"moment": clock.moment(), "batch": BATCH, "ids": list(job_ids)})
        return sum(jobs for jobs, _ in cursor.fetchall())
