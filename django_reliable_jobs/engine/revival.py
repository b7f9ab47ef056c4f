"""Ended jobs begin again, because a person wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction

from django_reliable_jobs import clock
from django_reliable_jobs.engine import families
from django_reliable_jobs.engine.endings_of_jobs import FOLLOWED
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.engine.undoing import HAS_TO_UNDO
from django_reliable_jobs.engine.wakeup import notify_idle

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"

# A job that has succeeded, or has undone what it did, has nothing left to go on with: it begins a new run in any case.
# One that could not undo all that it did does so only if that is asked for: the new run knows nothing of it.
_IS_NEW_RUN = "(%(from_start)s OR job.status = 'SUCCEEDED' OR job.compensation IN ('done', 'failed'))"

REVIVE = f"""
WITH mine AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job job
     WHERE id = ANY(%(ids)s::bigint[]) AND status IN ('SUCCEEDED', 'DEAD', 'CANCELLED', 'SCHEDULED')
       AND NOT (compensation = 'running' AND %(from_start)s)
       AND NOT (compensation = 'failed' AND NOT %(from_start)s)
       AND NOT (status = 'SCHEDULED' AND %(from_start)s AND {HAS_TO_UNDO.format("job")})
     ORDER BY id FOR NO KEY UPDATE
), withdrawn AS (
    DELETE FROM django_reliable_jobs_cancelrequest WHERE job_id IN (SELECT id FROM mine)
), last_step AS (
    SELECT DISTINCT ON (job.id) saved.id, saved.state
      FROM mine JOIN django_reliable_jobs_job job ON job.id = mine.id
      JOIN django_reliable_jobs_checkpoint saved ON saved.job_id = job.id AND saved.run = job.run
     WHERE saved.kind <> 'checkpoint' AND job.finished_at IS NOT NULL ORDER BY job.id, saved.id DESC
), tried_anew AS (
    DELETE FROM django_reliable_jobs_checkpoint saved USING last_step
     WHERE saved.id = last_step.id AND last_step.state = 'failed'
)
UPDATE django_reliable_jobs_job job
   SET status = CASE WHEN %(spread)s > 0 THEN 'SCHEDULED' ELSE 'READY' END,
       run_after = {_NOW} + make_interval(secs => random() * %(spread)s), finished_at = NULL, result = NULL,
       reason = CASE WHEN job.compensation = 'running' THEN job.reason END, losses = 0,
       attempt = CASE WHEN job.status = 'SCHEDULED' AND NOT {_IS_NEW_RUN} THEN job.attempt ELSE 0 END,
       compensation = CASE WHEN {_IS_NEW_RUN} THEN 'none' ELSE job.compensation END,
       meta = CASE WHEN {_IS_NEW_RUN} THEN job.meta - '{FOLLOWED}' ELSE job.meta END,
       run = job.run + CASE WHEN {_IS_NEW_RUN} THEN 1 ELSE 0 END, expires_at = NULL, start_before = NULL
  FROM mine WHERE job.id = mine.id
RETURNING job.id, {notify_idle("job.queue_name")}
"""


NOT_UNDONE = """
SELECT id FROM django_reliable_jobs_job
 WHERE id = ANY(%(ids)s::bigint[]) AND compensation = 'failed' AND finished_at IS NOT NULL ORDER BY id
"""

# What stopped goes on where it stopped. `on_dead` has followed, and does so once.
RETRY_UNDO = f"""
WITH mine AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job
     WHERE id = ANY(%(ids)s::bigint[]) AND compensation = 'failed' AND finished_at IS NOT NULL
     ORDER BY id FOR NO KEY UPDATE
), tried_anew AS (
    UPDATE django_reliable_jobs_checkpoint saved
       SET undo_state = CASE WHEN saved.state = 'failed' THEN 'trying' END, undo_tries = NULL
      FROM mine JOIN django_reliable_jobs_job job ON job.id = mine.id
     WHERE saved.job_id = job.id AND saved.run = job.run AND saved.undo_state = 'failed'
)
UPDATE django_reliable_jobs_job job
   SET status = 'READY', compensation = 'running', ends_as = job.status, run_after = {_NOW}, finished_at = NULL,
       losses = 0, unique_hash = CASE WHEN %(keeps_key)s THEN job.unique_hash END,
       meta = CASE WHEN job.status = 'DEAD' AND jsonb_exists(job.meta, 'on_dead')
                   THEN job.meta || '{{"{FOLLOWED}": true}}' ELSE job.meta END
  FROM mine WHERE job.id = mine.id
RETURNING job.id, {notify_idle("job.queue_name")}
"""


@dataclass(frozen=True)
class Revived:
    """What `revive` did, as job ids."""

    revived: list[int]
    has_live_duplicate: list[int]  # a live job holds its unique key
    is_not_undone: list[int]  # it could not undo what it did: see `retry_undo`


def revive(using: str, job_ids: Sequence[int], *, from_start: bool = False, spread: timedelta = timedelta()) -> Revived:
    """Make ended jobs READY again, with all their attempts; a retry that waits becomes due now. Others stay as they
    are. With `spread`, each is due at a moment of its own between now and then, so that they don't come all at once.

    One whose undo has failed stays as it is, so that what it did is not forgotten, unless it is to begin `from_start`;
    one that waits for a retry and has something to undo does not begin `from_start`: it is to be cancelled first.

    They go on from their checkpoints; the last step, if it failed for good, or wait, if it was given up, is tried anew.
    `from_start`, and for those that have succeeded: a new run begins, in which no checkpoint, step or idempotency key
    of an earlier one answers.
    """
    revived: list[int] = []
    duplicates: list[int] = []
    with short_transaction(using) as cursor:
        cursor.execute(
            "SELECT id FROM django_reliable_jobs_job WHERE id = ANY(%s) AND unique_hash IS NOT NULL",
            [list(job_ids)],
        )
        parameters = {"moment": clock.moment(), "from_start": from_start, "spread": spread.total_seconds()}
        with_key = {job_id for (job_id,) in cursor.fetchall()}
        for group in [
            [each for each in job_ids if each not in with_key],
            *([each] for each in sorted(with_key)),
        ]:
            try:
                with transaction.atomic(using=using):
                    cursor.execute(REVIVE, {"ids": sorted(group), **parameters})
                    revived += [row[0] for row in cursor.fetchall()]
            except IntegrityError:
                duplicates += group
        families.reopen(using, revived)
        cursor.execute(NOT_UNDONE, {"ids": [] if from_start else sorted(set(job_ids) - set(revived))})
        return Revived(revived, duplicates, [job_id for (job_id,) in cursor.fetchall()])


def retry_undo(using: str, job_ids: Sequence[int]) -> list[int]:
    """Go on undoing what these ended jobs did and could not undo, where it stopped; return their ids.

    One whose unique key another job holds by now gives it up: undoing can't wait for that one's end.
    """
    undoing: list[int] = []
    with short_transaction(using) as cursor:
        for job_id in sorted(job_ids):
            parameters = {"ids": [job_id], "moment": clock.moment()}
            try:
                with transaction.atomic(using=using):
                    cursor.execute(RETRY_UNDO, {**parameters, "keeps_key": True})
                    undoing += [row[0] for row in cursor.fetchall()]
            except IntegrityError:
                cursor.execute(RETRY_UNDO, {**parameters, "keeps_key": False})
                undoing += [row[0] for row in cursor.fetchall()]
    return undoing
