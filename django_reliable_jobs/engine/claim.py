"""Taking jobs: READY -> RUNNING under a fresh token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_reliable_jobs import clock
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.engine.waits import HAS_NEWS

NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"


class ClaimedJob(NamedTuple):
    """One claimed row, as little of it as its execution needs."""

    id: int
    token: int
    task: str
    args: str  # JSON
    kwargs: str  # JSON
    attempt: int
    max_attempts: int
    claims: int
    losses: int
    queue_name: str
    priority: int
    due: str
    run: int
    schedule_id: int | None
    slot: datetime | None
    is_late: bool  # past `expires` or its start deadline: to be cancelled, not run
    is_undoing: bool  # it is to undo what its steps did, and then to end
    batch_id: int | None  # whose end hangs on that of its jobs


class Arm(NamedTuple):
    """One line of the ready index: a queue and a priority, how many jobs of the queue may be taken, and behind which.

    The cursor (due, id) spares the claim the dead entries of what was claimed before it, which are many when an old
    snapshot holds back vacuum. It is a hint: retries, rescues and late commits lie below it, so that each `look` gives
    a new one, which stands before the first ready job.
    """

    queue_name: str
    priority: int
    share: int
    due: str = "-infinity"  # PostgreSQL's text of a timestamptz, exact to the microsecond
    id: int = 0


class Head(NamedTuple):
    """The first job of an arm, as `look` saw it."""

    queue_name: str
    priority: int
    id: int
    due: str
    waited: float  # seconds since it was due
    is_suspect: bool  # it lost its worker before
    is_capped: bool  # its queue has a limit of its own: `engine.limited` claims from it, the exchange does not


class Sight(NamedTuple):
    """What `look` saw of the lines that jobs wait in; what is paused it does not see."""

    heads: list[Head]
    next_due: float | None  # seconds until the next scheduled job is due
    limited: list[str]  # the queues in which jobs with limits are ready
    has_news: bool = False  # there are events, or jobs whose wait is over, that nobody has looked at


# Only rows of the ready index; what has a limit is not in it.
IS_READY = "job.status = 'READY' AND job.concurrency_key IS NULL AND job.rate_key IS NULL AND job.serial_key IS NULL"

# Those that are, in the order of the index `reliable_job_limited`: all with the same keys stand in one line.
IS_LIMITED = (
    "job.status = 'READY'"
    " AND (job.concurrency_key IS NOT NULL OR job.rate_key IS NOT NULL OR job.serial_key IS NOT NULL)"
)

# The queue of an arm is not paused (nor all, the row `*`), nor limited to no job at all. A scalar subquery on purpose:
# as NOT EXISTS it becomes a join, and a join may turn the order of the arms round.
_IS_PAUSED = (
    f"(queue.concurrency = 0 OR queue.paused_at IS NOT NULL AND (queue.resume_at IS NULL OR queue.resume_at > {NOW}))"
)
_IS_OPEN = "(SELECT count(*) FROM django_reliable_jobs_queue queue WHERE queue.name IN ({}.queue_name, '*') AND %s) = 0"
IS_OPEN = _IS_OPEN % _IS_PAUSED
IS_OPEN_TO_ALL = _IS_OPEN % f"(queue.concurrency IS NOT NULL OR {_IS_PAUSED})"
IS_CAPPED = (
    "(SELECT count(*) FROM django_reliable_jobs_queue queue"
    " WHERE queue.name = {}.queue_name AND queue.concurrency IS NOT NULL) > 0"
)

# What a claim writes. A job that is unique until its start gives up its key for good, so that no retry can collide.
TAKE = f"""
UPDATE django_reliable_jobs_job job
   SET status = 'RUNNING', attempt = job.attempt + 1, claims = job.claims + 1, worker_id = %(worker_id)s,
       token = (random() * 9223372036854775295)::bigint,
       started_at = {NOW}, first_started_at = coalesce(job.first_started_at, {NOW}),
       unique_hash = CASE WHEN job.unique_until_start THEN NULL ELSE job.unique_hash END
"""
TAKEN = f"""job.id, job.token, job.task, job.args::text, job.kwargs::text, job.attempt, job.max_attempts, job.claims,
       job.losses, job.queue_name, job.priority, job.run_after::text, job.run, job.schedule_id, job.slot,
       coalesce(least(job.expires_at, job.start_before) < {NOW}, false), job.compensation = 'running',
       job.batch_id"""

ARMS = """unnest(%(queues)s::text[], %(priorities)s::smallint[], %(shares)s::int[],
                          %(dues)s::timestamptz[], %(after_ids)s::bigint[])
                   WITH ORDINALITY AS {}(queue_name, priority, share, due, id, position)"""


# The claim. MATERIALIZED: inlined, the planner may lock and take more rows than the LIMIT. One arm per queue and
# priority: an equality on both lets each arm read the index in order, from where its cursor stands. `solo`: a job that
# must not be started twice is not taken ahead of a free thread. `suspect`: a job that lost its worker is taken by a
# process that holds nothing else, and alone, so that a job that kills its process takes no neighbour with it. The batch
# ends before what can't be taken now, so that nothing overtakes it.
def claim_from(arms: str, is_open: str) -> str:
    """Return the claim as common table expressions; `arms` is the SQL of a table named arm."""
    return f"""
picked AS MATERIALIZED (
    SELECT id, position,
           first_value(suspect) OVER (ORDER BY position) AND position > 1
           OR count(*) FILTER (WHERE solo AND position > %(free)s OR suspect AND position > 1)
              OVER (ORDER BY position) > 0 AS is_held_back
      FROM (SELECT shared.*, row_number() OVER (ORDER BY scanned_at) AS position
              FROM (SELECT scanned.*, row_number() OVER (PARTITION BY queue_name ORDER BY scanned_at) AS place
                      FROM (SELECT ready.*, arm.queue_name, arm.share, row_number() OVER () AS scanned_at
                              FROM {arms}
                             CROSS JOIN LATERAL (
                                   SELECT job.id, job.max_attempts = 1 AS solo, job.losses > 0 AS suspect
                                     FROM django_reliable_jobs_job job
                                    WHERE {IS_READY}
                                      AND job.queue_name = arm.queue_name AND job.priority = arm.priority
                                      AND (job.run_after, job.id) > (arm.due, arm.id)
                                      AND {is_open}
                                      AND (job.losses = 0 OR %(alone)s)
                                      AND NOT EXISTS (SELECT 1 FROM django_reliable_jobs_cancelrequest asked
                                                       WHERE asked.job_id = job.id)
                                    ORDER BY job.run_after, job.id
                                    LIMIT least(arm.share, %(limit)s)
                                      FOR NO KEY UPDATE OF job SKIP LOCKED
                                   ) ready
                             LIMIT %(scan)s) scanned) shared
             WHERE place <= share) numbered
), taken AS (
    {TAKE} FROM picked
     WHERE job.id = picked.id AND picked.position <= %(limit)s AND NOT picked.is_held_back
    RETURNING picked.position, {TAKEN}
)"""


CLAIM = claim_from(ARMS.format("arm"), IS_OPEN_TO_ALL.format("arm"))

# Loose index scans, parts of WITH RECURSIVE: one index descent per queue and priority that has a ready job, however
# many jobs it has, and one per queue that has a limited one.
HEADS = f"""head AS (
    (SELECT job.queue_name, job.priority, job.id, job.run_after, job.losses
       FROM django_reliable_jobs_job job
      WHERE {IS_READY} ORDER BY job.queue_name, job.priority, job.run_after, job.id LIMIT 1)
    UNION ALL
    SELECT later.* FROM head CROSS JOIN LATERAL (
        SELECT job.queue_name, job.priority, job.id, job.run_after, job.losses
          FROM django_reliable_jobs_job job
         WHERE {IS_READY} AND (job.queue_name, job.priority) > (head.queue_name, head.priority)
         ORDER BY job.queue_name, job.priority, job.run_after, job.id LIMIT 1) later
)"""
LIMITED_QUEUES = f"""limited AS (
    (SELECT job.queue_name FROM django_reliable_jobs_job job WHERE {IS_LIMITED} ORDER BY job.queue_name LIMIT 1)
    UNION ALL
    SELECT later.* FROM limited CROSS JOIN LATERAL (
        SELECT job.queue_name FROM django_reliable_jobs_job job
         WHERE {IS_LIMITED} AND job.queue_name > limited.queue_name ORDER BY job.queue_name LIMIT 1) later
)"""

LOOK = f"""
WITH RECURSIVE {HEADS}, {LIMITED_QUEUES}
SELECT queue_name, priority, id, run_after::text, extract(epoch FROM {NOW} - run_after)::float8, losses > 0,
       {IS_CAPPED.format("head")}
  FROM head WHERE {IS_OPEN.format("head")}
 UNION ALL
SELECT queue_name, NULL, NULL, NULL, NULL, NULL, NULL FROM limited WHERE {IS_OPEN.format("limited")}
 UNION ALL
SELECT NULL, NULL, NULL, NULL, extract(epoch FROM min(job.run_after) - {NOW})::float8, {HAS_NEWS}, NULL
  FROM django_reliable_jobs_job job WHERE job.status IN ('SCHEDULED', 'WAITING')
"""

CLAIM_PASSED_OVER = f"""
WITH picked AS MATERIALIZED (
    SELECT job.id FROM django_reliable_jobs_job job
     WHERE job.id = %(id)s AND {IS_READY} AND {IS_OPEN_TO_ALL.format("job")}
       AND NOT EXISTS (SELECT 1 FROM django_reliable_jobs_cancelrequest asked WHERE asked.job_id = job.id)
       FOR NO KEY UPDATE OF job
)
{TAKE} FROM picked WHERE job.id = picked.id
RETURNING {TAKEN}
"""

# The one job behind a place in a line, if none of its queue goes before that line.
CLAIM_NEXT = f"""
WITH picked AS MATERIALIZED (
    SELECT job.id FROM django_reliable_jobs_job job
     WHERE {IS_READY} AND job.queue_name = %(queue_name)s AND job.priority = %(priority)s
       AND (job.run_after, job.id) > (%(due)s::timestamptz, %(id)s) AND job.losses = 0
       AND {IS_OPEN_TO_ALL.format("job")}
       AND NOT EXISTS (SELECT 1 FROM django_reliable_jobs_cancelrequest asked WHERE asked.job_id = job.id)
       AND NOT EXISTS (SELECT 1 FROM django_reliable_jobs_job job
                        WHERE {IS_READY} AND job.queue_name = %(queue_name)s AND job.priority > %(priority)s)
     ORDER BY job.run_after, job.id LIMIT 1
       FOR NO KEY UPDATE OF job SKIP LOCKED
)
{TAKE} FROM picked WHERE job.id = picked.id
RETURNING {TAKEN}
"""

FIND_ORPHANS = f"""
SELECT {TAKEN} FROM django_reliable_jobs_job job
 WHERE job.worker_id = %(worker_id)s AND job.status = 'RUNNING' AND job.token <> ALL(%(held)s::bigint[])
"""


def look(using: str) -> Sight:
    """Return the head of each queue and priority that has a ready job, and what else there is to wait for."""
    with engine_cursor(using) as cursor:
        cursor.execute(LOOK, {"moment": clock.moment()})
        *rows, (_, _, _, _, next_due, has_news, _) = cursor.fetchall()
    heads = [Head._make(row) for row in rows if row[1] is not None]
    return Sight(heads, next_due, [row[0] for row in rows if row[1] is None], has_news)


def claim_parameters(worker_id: int, arms: Sequence[Arm], *, limit: int, free: int, alone: bool) -> dict[str, Any]:
    """Return what CLAIM is executed with: at most `limit` jobs, `free` to start at once; suspects if `alone`."""
    return {
        "moment": clock.moment(),
        "worker_id": worker_id,
        "queues": [arm.queue_name for arm in arms],
        "priorities": [arm.priority for arm in arms],
        "shares": [arm.share for arm in arms],
        "dues": [arm.due for arm in arms],
        "after_ids": [arm.id for arm in arms],
        "limit": limit,
        # A queue's further priorities are scanned beyond its share, so that no other queue is left out for them.
        "scan": min(sum(arm.share for arm in arms), 2 * limit),
        "free": free,
        "alone": alone,
    }


def claim_next(using: str, worker_id: int, line: Arm) -> ClaimedJob | None:
    """Claim the next ready job behind a place in its line, without a look at the others; none that lost its worker.

    None: there is none, or a job of a higher priority is ready in the queue.
    """
    with engine_cursor(using) as cursor:
        cursor.execute(CLAIM_NEXT, {**line._asdict(), "moment": clock.moment(), "worker_id": worker_id})
        row = cursor.fetchone()
    return None if row is None else ClaimedJob._make(row)


def claim_passed_over(using: str, worker_id: int, job_id: int, *, patience: float) -> ClaimedJob | None:
    """Claim a ready job that SKIP LOCKED passes over, standing in line for its lock for `patience` seconds.

    Callers that enqueue one unique key without a pause lock its job one after another; a claim that only ever skips
    would never find it free. Returns None if it is no longer ready or the lock did not come.
    """
    from django.db.utils import OperationalError

    try:
        with short_transaction(using) as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {int(patience * 1000)}")
            cursor.execute(CLAIM_PASSED_OVER, {"moment": clock.moment(), "worker_id": worker_id, "id": job_id})
            row = cursor.fetchone()
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) == "55P03":  # lock_not_available
            return None
        raise
    return None if row is None else ClaimedJob._make(row)


def find_orphans(using: str, worker_id: int, held: set[int]) -> list[ClaimedJob]:
    """Return jobs that this worker claimed but does not hold: the answer to the claim was lost with its connection."""
    with engine_cursor(using) as cursor:
        cursor.execute(FIND_ORPHANS, {"moment": clock.moment(), "worker_id": worker_id, "held": list(held)})
        return [ClaimedJob._make(row) for row in cursor.fetchall()]
