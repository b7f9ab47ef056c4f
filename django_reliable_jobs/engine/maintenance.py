"""What any process may do for all: promote what is due, rescue from the lost, honour cancel requests, prune.

Each function is one short transaction over a bounded batch that skips what others hold, so that any number of processes
may call it at once.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import alerts, cancelling, counters, isolation, lifecycle, lost, references, successes
from django_reliable_jobs.engine.deleting import DELETE_OLD_JOBS
from django_reliable_jobs.engine.kinds import IS_OF_KIND, KINDS
from django_reliable_jobs.engine.lifecycle import Ending
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.engine.wakeup import notify_idle
from django_reliable_jobs.models import Alert, Job

logger = logging.getLogger("django_reliable_jobs")

BATCH = 1000
RESCUE_BATCH = 100

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"

PROMOTE = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job
     WHERE status IN ('SCHEDULED', 'WAITING') AND run_after <= coalesce(%(moment)s::timestamptz, statement_timestamp())
     ORDER BY run_after, id LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED
), promoted AS (
    UPDATE django_reliable_jobs_job job SET status = 'READY' FROM due WHERE job.id = due.id RETURNING job.queue_name
), queues AS (
    SELECT queue_name, count(*) AS jobs FROM promoted GROUP BY queue_name
)
SELECT jobs, {notify_idle("queues.queue_name")} FROM queues
"""

IS_ANY_EXPIRED = """
SELECT EXISTS (SELECT 1 FROM django_reliable_jobs_worker
                WHERE expires_at < clock_timestamp() AND id <> ALL(%(seen)s::bigint[]))
"""

# The row of a lost worker stays until no RUNNING row names it: a row that was locked, or a claim of its own that
# committed after it was declared lost, is taken by a later turn.
LOST_WORKER = """
UPDATE django_reliable_jobs_worker worker
   SET lost_at = coalesce(worker.lost_at, clock_timestamp()), is_idle = false
  FROM (SELECT id, lost_at FROM django_reliable_jobs_worker
         WHERE expires_at < clock_timestamp() AND id <> ALL(%(seen)s::bigint[])
         ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) expired
 WHERE worker.id = expired.id
RETURNING worker.id, worker.host, worker.pid,
          to_char(worker.heartbeat_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'),
          expired.lost_at IS NULL AND NOT worker.is_stopping
"""

# RUNNING rows of a worker that is not on the list: it was forgotten while a claim of its own was on the way, or claimed
# under its old id when it woke up. Back on the list with it, as lost: after a lease, when the worker knows.
LIST_FORGOTTEN_WORKERS = """
WITH RECURSIVE holder AS (
    (SELECT worker_id AS id FROM django_reliable_jobs_job WHERE status = 'RUNNING' ORDER BY worker_id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.worker_id FROM django_reliable_jobs_job job
             WHERE job.status = 'RUNNING' AND job.worker_id > holder.id ORDER BY job.worker_id LIMIT 1)
      FROM holder WHERE holder.id IS NOT NULL
)
INSERT INTO django_reliable_jobs_worker (id, host, pid, threads, heartbeat_at, expires_at, lost_at)
SELECT holder.id, 'unknown', 0, 0, oldest.started_at, clock_timestamp(), clock_timestamp()
  FROM holder CROSS JOIN LATERAL (SELECT min(job.started_at) AS started_at FROM django_reliable_jobs_job job
                                   WHERE job.worker_id = holder.id AND job.status = 'RUNNING') oldest
 WHERE NOT EXISTS (SELECT 1 FROM django_reliable_jobs_worker worker WHERE worker.id = holder.id)
   AND oldest.started_at < clock_timestamp() - make_interval(secs => %(lease)s)
    ON CONFLICT (id) DO NOTHING
"""

DEAD_WORKER = """
UPDATE django_reliable_jobs_worker worker
   SET lost_at = coalesce(worker.lost_at, clock_timestamp()), expires_at = clock_timestamp(), is_idle = false
  FROM (SELECT id, lost_at FROM django_reliable_jobs_worker WHERE id = %(id)s FOR NO KEY UPDATE) dead
 WHERE worker.id = dead.id
RETURNING dead.lost_at IS NOT NULL,
          worker.id, worker.host, worker.pid,
          to_char(worker.heartbeat_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'),
          dead.lost_at IS NULL AND NOT worker.is_stopping
"""

# A checkpoint saved under the lost token is progress: the losses before it do not count on.
THEIR_JOBS = """
SELECT job.id, job.token, job.max_attempts, extract(epoch FROM clock_timestamp() - job.started_at)::float8,
       CASE WHEN EXISTS (SELECT 1 FROM django_reliable_jobs_checkpoint saved
                          WHERE saved.job_id = job.id AND saved.token = job.token) THEN 0 ELSE job.losses END,
       job.compensation = 'running', job.queue_name, job.task
  FROM django_reliable_jobs_job job WHERE job.worker_id = %(id)s AND job.status = 'RUNNING'
 ORDER BY job.id LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED
"""

FORGET_WORKER = """
DELETE FROM django_reliable_jobs_worker worker WHERE id = %(id)s AND lost_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM django_reliable_jobs_job job WHERE job.worker_id = worker.id AND job.status = 'RUNNING')
"""

RESUME_QUEUES = f"""
WITH due AS MATERIALIZED (
    SELECT name FROM django_reliable_jobs_queue WHERE paused_at IS NOT NULL AND resume_at <= {_NOW}
     ORDER BY name FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE django_reliable_jobs_queue queue SET paused_at = NULL, resume_at = NULL FROM due WHERE queue.name = due.name
"""

# The kinds whose oldest job is the oldest come first, so that none has to wait for the others.
PRUNE = f"""
WITH RECURSIVE {KINDS}, due AS MATERIALIZED (
    SELECT kind.* FROM kind CROSS JOIN LATERAL (
           SELECT job.finished_at FROM django_reliable_jobs_job job
            WHERE {IS_OF_KIND} ORDER BY job.finished_at LIMIT 1) oldest
     WHERE oldest.finished_at < {_NOW} - %(age)s::interval ORDER BY oldest.finished_at
), old AS MATERIALIZED (
    SELECT old.id FROM due kind CROSS JOIN LATERAL (
           SELECT job.id FROM django_reliable_jobs_job job
            WHERE {IS_OF_KIND} AND job.finished_at < {_NOW} - %(age)s::interval AND {{is_free}}
              AND (job.status = 'DEAD' OR job.compensation <> 'failed') AND NOT EXISTS (
                  SELECT 1 FROM django_reliable_jobs_job parent
                   WHERE parent.id = job.parent_id AND parent.finished_at IS NULL)
            ORDER BY job.finished_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED) old LIMIT %(batch)s
), {DELETE_OLD_JOBS}
DELETE FROM django_reliable_jobs_job WHERE id IN (SELECT id FROM old)
"""


def promote(using: str) -> int:
    """Make due scheduled jobs READY, oldest first, at most one batch; return how many."""
    with engine_cursor(using) as cursor:
        cursor.execute(PROMOTE, {"moment": clock.moment(), "batch": BATCH})
        return sum(jobs for jobs, _ in cursor.fetchall())


def rescue(using: str, *, uniform: Callable[[], float] = random.random) -> int:
    """Take the jobs of workers whose lease ran out; return how many.

    Call only from a process that has reached the database without a break for a whole lease: after an outage of the
    server the living have not renewed either.
    """
    _execute(using, LIST_FORGOTTEN_WORKERS, lease=settings.LEASE_SECONDS)
    rescued, seen = 0, [0]
    while _is_any_expired(using, seen):
        with short_transaction(using) as cursor:
            cursor.execute(LOST_WORKER, {"seen": seen})
            row = cursor.fetchone()
            if row is None:
                return rescued
            count = _take_from(using, cursor, LostWorker._make(row), uniform=uniform)
            rescued += count
            if count < RESCUE_BATCH:
                seen.append(row[0])
    return rescued


def _is_any_expired(using: str, seen: list[int]) -> bool:
    """Look before a transaction is opened: nearly always there is nothing to rescue."""
    with engine_cursor(using) as cursor:
        cursor.execute(IS_ANY_EXPIRED, {"seen": seen})
        return bool(cursor.fetchone()[0])


def rescue_dead(using: str, worker_id: int, *, started: Collection[int] | None, cause: str) -> int:
    """Take the jobs of one worker whose process is known to be dead, without waiting for its lease; return how many.

    `started` are the tokens that it had begun and not recorded: the others never ran and are given back uncounted;
    None: any may have run. `cause` is kept with the attempts ("killed by signal 9"). A worker that had been declared
    lost has dropped what it had begun, and no longer knows it: any of it may have run.
    """
    rescued, is_first = 0, True
    while True:
        with short_transaction(using) as cursor:
            cursor.execute(DEAD_WORKER, {"id": worker_id})
            row = cursor.fetchone()
            if row is None:
                return rescued
            was_lost, *columns = row
            started, is_first = None if was_lost and is_first else started, False
            count = _take_from(using, cursor, LostWorker._make(columns), started=started, cause=cause)
            rescued += count
            if count < RESCUE_BATCH:
                return rescued


class LostWorker(NamedTuple):
    id: int
    host: str
    pid: int
    heartbeat_at: str
    is_news: bool  # nobody had declared it lost before, and it was not stopping


def _take_from(
    using: str,
    cursor: CursorWrapper,
    worker: LostWorker,
    *,
    started: Collection[int] | None = None,
    cause: str = "its lease ran out",
    uniform: Callable[[], float] = random.random,
) -> int:
    cursor.execute(THEIR_JOBS, {"id": worker.id, "batch": RESCUE_BATCH})
    message = (
        f"the worker on {worker.host}, process {worker.pid}, was lost: {cause}; last heartbeat {worker.heartbeat_at}"
    )
    endings, places = [], {}
    for job_id, token, max_attempts, age, losses, is_undoing, *place in cursor.fetchall():
        places[job_id] = place
        is_lost = started is None or token in started
        loss = lost.outcome(message, max_attempts, losses + 1, uniform, is_undoing=is_undoing)
        outcome = loss if is_lost else lost.NOT_STARTED
        endings.append(Ending(job_id, token, outcome, started_ago=age))
    if worker.is_news:
        alerts.note(using, Alert.Kind.WORKER_LOST, worker.host, f"{message[0].upper()}{message[1:]}.")
    name = f"{worker.host}:{worker.pid}"
    taken, refused = isolation.write_each(lambda batch: lifecycle.end(using, batch, worker=name), endings)
    for ending, error in refused:
        logger.error("job %s was lost with its worker and can't be taken back: %s", ending.job_id, error)
    lost.log_dead(
        [each for each in endings if each.job_id in taken], {each: task for each, (_, task) in places.items()}
    )
    counters.add_lost(using, [places[each.job_id] for each in endings if each.job_id in taken and each.outcome.losses])
    cursor.execute(FORGET_WORKER, {"id": worker.id})
    return len(taken)


def honour_cancel_requests(using: str) -> cancelling.Answered:
    """Cancel what was asked to cancel while it ran and is at rest again."""
    return cancelling.honour_requests(using, batch=BATCH)


def resume_queues(using: str) -> int:
    """Resume paused queues whose `resume_at` has come; return how many."""
    return _execute(using, RESUME_QUEUES)


def prune(using: str, *, batches: int | None = None) -> int:
    """Delete ended jobs older than RETENTION with all that belongs to them, in batches; return how many jobs.

    A job to which a row of the project refers is kept, and told of.
    """
    deleted, found = 0, references.find(using)
    statement = PRUNE.format(is_free=references.is_free(found))
    successes.note(using)
    for status in Job.ENDED:
        age = settings.retention_of(status)
        count, left = BATCH, batches
        while age is not None and count == BATCH and left != 0:
            try:
                count = _execute(using, statement, statuses=[status.value], age=age, batch=BATCH)
            except IntegrityError as error:
                logger.error("ended jobs (%s) can't be deleted, the project's rows refer to one: %s", status, error)
                break
            deleted += count
            left = None if left is None else left - 1
        if age is not None:
            references.report_kept(using, found, status.value, age)
    return deleted


def _execute(using: str, statement: str, **parameters: Any) -> int:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, {"moment": clock.moment(), **parameters})
        return int(cursor.rowcount)
