"""Jobs are cancelled because somebody wants it: at once what is at rest, by a request what runs.

What has something to undo does not end yet: it is ready for that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db.backends.utils import CursorWrapper

from django_reliable_jobs import clock
from django_reliable_jobs.engine import endings_of_jobs, families
from django_reliable_jobs.engine.endings_of_jobs import Ended
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.engine.undoing import HAS_TO_UNDO
from django_reliable_jobs.engine.wakeup import notify_idle
from django_reliable_jobs.models import Job

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"
WITH_PARENT = "cancelled with the job that started it"
_LIVE_AT_REST = "('SCHEDULED', 'READY', 'WAITING')"

LOCK_AT_REST = f"""
SELECT id FROM django_reliable_jobs_job
 WHERE id = ANY(%(ids)s::bigint[]) AND status IN {_LIVE_AT_REST} AND compensation <> 'running'
 ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""

# A statement of its own after the lock, so that its snapshot sees what the last attempt had kept.
CANCEL_AT_REST = f"""
WITH given AS MATERIALIZED (
    SELECT id, {HAS_TO_UNDO.format("mine")} AS must_undo FROM django_reliable_jobs_job mine
     WHERE id = ANY(%(ids)s::bigint[])
)
UPDATE django_reliable_jobs_job job
   SET status = CASE WHEN given.must_undo THEN 'READY' ELSE 'CANCELLED' END,
       compensation = CASE WHEN given.must_undo THEN 'running' ELSE job.compensation END,
       ends_as = CASE WHEN given.must_undo THEN 'CANCELLED' END, losses = 0,
       run_after = CASE WHEN given.must_undo THEN {_NOW} ELSE job.run_after END, expires_at = NULL, start_before = NULL,
       finished_at = CASE WHEN given.must_undo THEN NULL ELSE {_NOW} END,
       reason = coalesce((SELECT nullif(asked.reason, '') FROM django_reliable_jobs_cancelrequest asked
                           WHERE asked.job_id = job.id), nullif(%(reason)s, ''), 'cancelled on request')
  FROM given WHERE job.id = given.id
RETURNING job.id, job.status, job.task, job.meta, job.batch_id,
          CASE WHEN given.must_undo THEN {notify_idle("job.queue_name")} END
"""

# Not only for RUNNING: a row that was locked a moment ago may be on its way there. Claims pass over what is asked to
# cancel.
ASK_TO_CANCEL = """
INSERT INTO django_reliable_jobs_cancelrequest AS asked (job_id, reason, with_children)
SELECT id, %(reason)s, %(with_children)s FROM django_reliable_jobs_job
 WHERE id = ANY(%(ids)s::bigint[]) AND status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING')
   AND compensation <> 'running'
    ON CONFLICT (job_id) DO UPDATE SET with_children = true WHERE excluded.with_children AND NOT asked.with_children
RETURNING job_id
"""

# Open requests of jobs that are at rest again.
ANSWERABLE = """
SELECT asked.job_id, asked.with_children FROM django_reliable_jobs_cancelrequest asked
  JOIN django_reliable_jobs_job job ON job.id = asked.job_id
 WHERE job.status <> 'RUNNING' ORDER BY asked.job_id LIMIT %(batch)s
"""
FORGET_ANSWERED = """
DELETE FROM django_reliable_jobs_cancelrequest asked USING django_reliable_jobs_job job
 WHERE asked.job_id = ANY(%(ids)s::bigint[]) AND job.id = asked.job_id
   AND (job.finished_at IS NOT NULL OR job.compensation = 'running')
"""


@dataclass(frozen=True)
class Cancelled:
    """What `cancel` did, as job ids."""

    cancelled: list[int]
    asked: list[int]  # running: its worker is told with its next heartbeat; or it undoes first what it did


def cancel(using: str, job_ids: Sequence[int], *, reason: str, children: bool = False) -> Cancelled:
    """Cancel jobs that have not ended: at once what waits, by a request what runs. A job that succeeds first is
    SUCCEEDED. `children`: also the jobs that they started with `start_child`, and so on; of what runs, also those that
    it starts before it ends.
    """
    with short_transaction(using) as cursor:
        rows = list[Ended]()
        done = _cancel(using, cursor, job_ids, rows, reason=reason, children=children)
        endings_of_jobs.ended(using, rows)
        return done


def cancel_children(using: str, cursor: CursorWrapper, parents: Sequence[int], *, reason: str) -> list[Ended]:
    """Cancel, in the current transaction, the children of jobs that were cancelled with them.

    Return what was at rest, for `ended`.
    """
    young, rows = families.live_children(using, parents), list[Ended]()
    _cancel(using, cursor, young, rows, reason=reason, children=True)
    return rows


def _cancel(
    using: str, cursor: CursorWrapper, job_ids: Sequence[int], rows: list[Ended], *, reason: str, children: bool
) -> Cancelled:
    """Cancel; `rows` gets what was at rest, all of which is to be told to `ended` at once: so that batches are locked
    in the order of their ids.
    """
    # Parents first: one that is told of its children's end before its own would go on.
    done = Cancelled([], [])
    generation, seen = list(job_ids), set[int]()
    while generation:
        at_rest = cancel_at_rest(cursor, generation, reason=reason)
        rows += at_rest
        statuses = {each.job_id: each.status for each in at_rest}
        left = sorted(set(generation) - set(statuses))
        cursor.execute(ASK_TO_CANCEL, {"ids": left, "reason": reason, "with_children": children})
        done.asked.extend(job_id for (job_id,) in cursor.fetchall())
        cancelled = _cancelled(at_rest)
        done.cancelled.extend(cancelled)
        done.asked.extend(set(statuses) - set(cancelled))
        seen.update(generation)
        generation = (
            [each for each in families.live_children(using, generation) if each not in seen] if children else []
        )
    return done


def _cancelled(rows: Sequence[Ended]) -> list[int]:
    return [each.job_id for each in rows if each.status == Job.Status.CANCELLED]


def cancel_at_rest(cursor: CursorWrapper, job_ids: Collection[int], *, reason: str) -> list[Ended]:
    """Cancel, in the current transaction, those of these jobs that are at rest and free; return them, for `ended`.

    READY is what has something to undo first.
    """
    cursor.execute(LOCK_AT_REST, {"ids": sorted(job_ids)})
    locked = [job_id for (job_id,) in cursor.fetchall()]
    if not locked:
        return []
    cursor.execute(CANCEL_AT_REST, {"ids": locked, "reason": reason, "moment": clock.moment()})
    return [Ended(*row[:-1]) for row in cursor.fetchall()]


class Answered(NamedTuple):
    """What `honour_requests` did."""

    requests: int
    cancelled: list[int]  # job ids


def honour_requests(using: str, *, batch: int) -> Answered:
    """Cancel what was asked to cancel while it ran and is at rest again."""
    with engine_cursor(using) as cursor:
        cursor.execute(ANSWERABLE, {"batch": batch})
        with_children = dict(cursor.fetchall())
    if not with_children:
        return Answered(0, [])
    job_ids = list(with_children)
    with short_transaction(using) as cursor:
        rows = cancel_at_rest(cursor, job_ids, reason="")
        if parents := [each.job_id for each in rows if with_children[each.job_id]]:
            rows += cancel_children(using, cursor, parents, reason=WITH_PARENT)
        endings_of_jobs.ended(using, rows)
        cursor.execute(FORGET_ANSWERED, {"ids": job_ids})
        requests = int(cursor.rowcount)
    return Answered(requests, _cancelled(rows))
