"""Taking jobs that count for limits: of their task, of a rate, of a schedule's turn, of their queue.

`claim_lines` is one transaction of two statements. LOCK takes the locks of the keys, skipping what others hold;
CLAIM_LINES, with a new snapshot, counts what runs under them and takes as much as is free. In one statement two
workers would both see the last place. Whoever holds the lock of a key is the only one who may start jobs of it, so that
what was counted can only fall.

The locks are advisory, of the transaction: no row per key to be made, locked and vacuumed at each start, and no session
state. They are never waited for, so that their order can't matter; job rows are locked after them, as everywhere.

What is promised: within a line the order is strict; lines take turns, those with the higher priority first among the
lines looked at, so that a line of 50,000 jobs does not hold up one of five.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import OperationalError
from django.db.backends.utils import CursorWrapper

from django_reliable_jobs import clock
from django_reliable_jobs.engine.claim import (
    ARMS,
    IS_LIMITED,
    IS_OPEN,
    NOW,
    TAKE,
    TAKEN,
    Arm,
    ClaimedJob,
    claim_from,
    claim_parameters,
)
from django_reliable_jobs.engine.limits import (
    FREE_STARTS,
    PACE,
    PLACES,
    PLACES_TAKEN,
    QUEUE_PLACES,
    QUEUE_PLACES_TAKEN,
    TURNS_TAKEN,
)
from django_reliable_jobs.engine.lines import LINE, Line
from django_reliable_jobs.engine.transaction import short_transaction

# Each kind of key has its own numbers. A lock that the session holds already is given again.
_LOCK = "(line.{0} IS NULL OR pg_try_advisory_xact_lock(hashtextextended(line.{0}, {1})))"
LOCK = f"""
SELECT line.position
  FROM unnest(%(queues)s::text[], %(concurrency_keys)s::text[], %(rate_keys)s::text[], %(serial_keys)s::text[])
       WITH ORDINALITY AS line(capped_queue, concurrency_key, rate_key, serial_key, position)
 WHERE {_LOCK.format("capped_queue", 7301)} AND {_LOCK.format("concurrency_key", 7302)}
   AND {_LOCK.format("rate_key", 7303)} AND {_LOCK.format("serial_key", 7304)}
 LIMIT %(most)s
"""

_IN_TURN = "ORDER BY ready.priority DESC, ready.number, ready.turn"
_FITS = "(ready.{0} IS NULL OR row_number() OVER (PARTITION BY ready.{0} {1}) <= ready.{2})"
_FIELDS = ", ".join(ClaimedJob._fields)

# Jobs of several lines may count for one key: each must fit under all its keys beside those before it. That is never
# too much; it may be too little, if one before it does not fit itself, but the first always fits.
CLAIM_LINES = f"""
WITH line AS MATERIALIZED (
    SELECT given.*, free.* FROM unnest(%(queues)s::text[], %(lines)s::text[], %(concurrency_keys)s::text[],
                                       %(rate_keys)s::text[], %(serial_keys)s::text[], %(capped)s::boolean[])
           WITH ORDINALITY AS given(queue_name, line, concurrency_key, rate_key, serial_key, is_capped, turn)
     CROSS JOIN LATERAL (
           SELECT CASE WHEN given.concurrency_key IS NOT NULL
                       THEN {PLACES.format("given.concurrency_key")} - {PLACES_TAKEN.format("given.concurrency_key")}
                       END AS of_concurrency,
                  CASE WHEN given.serial_key IS NOT NULL
                       THEN 1 - {TURNS_TAKEN.format("given.serial_key")} END AS of_serial,
                  CASE WHEN given.rate_key IS NOT NULL AND %(paced)s
                       THEN (SELECT {FREE_STARTS} FROM {PACE.format("given.rate_key")} pace) END AS of_rate,
                  {QUEUE_PLACES.format("given.queue_name")} AS queue_places,
                  CASE WHEN given.is_capped THEN {QUEUE_PLACES_TAKEN.format("given.queue_name")} END AS queue_taken
           ) free
     WHERE given.is_capped = (free.queue_places IS NOT NULL) AND {IS_OPEN.format("given")}
), ready AS MATERIALIZED (
    SELECT line.*, line.queue_places - line.queue_taken AS of_queue, job.*,
           row_number() OVER (PARTITION BY line.turn ORDER BY job.priority DESC, job.run_after, job.id) AS number
      FROM line CROSS JOIN LATERAL (
           SELECT job.id, job.priority, job.run_after, job.max_attempts = 1 AS solo, job.losses > 0 AS suspect
             FROM django_reliable_jobs_job job
            WHERE {IS_LIMITED} AND job.queue_name = line.queue_name AND {LINE} = line.line
              AND NOT EXISTS (SELECT 1 FROM django_reliable_jobs_cancelrequest asked WHERE asked.job_id = job.id)
            ORDER BY job.priority DESC, job.run_after, job.id
            LIMIT greatest(least(line.of_concurrency, line.of_serial, line.of_rate,
                                 line.queue_places - line.queue_taken, %(limit)s), 0)
              FOR NO KEY UPDATE OF job SKIP LOCKED) job
), fitting AS (
    SELECT ready.*, row_number() OVER ({_IN_TURN}) AS place,
           {_FITS.format("concurrency_key", _IN_TURN, "of_concurrency")}
           AND {_FITS.format("serial_key", _IN_TURN, "of_serial")}
           AND (ready.of_rate IS NULL OR {_FITS.format("rate_key", _IN_TURN, "of_rate")})
           AND (ready.of_queue IS NULL OR {_FITS.format("queue_name", _IN_TURN, "of_queue")})
           AND (%(alone)s OR count(*) FILTER (WHERE ready.suspect)
                             OVER (PARTITION BY ready.turn ORDER BY ready.number) = 0) AS fits
      FROM ready
), picked AS MATERIALIZED (
    SELECT id, turn, position,
           first_value(suspect) OVER (ORDER BY position) AND position > 1
           OR count(*) FILTER (WHERE solo AND position > %(free)s OR suspect AND position > 1)
              OVER (ORDER BY position) > 0 AS is_held_back
      FROM (SELECT fitting.*, row_number() OVER (ORDER BY place) AS position FROM fitting WHERE fits) numbered
     WHERE position <= %(limit)s
), taken (position, turn, counts_for, {_FIELDS}) AS (
    {TAKE} FROM picked WHERE job.id = picked.id AND NOT picked.is_held_back
    RETURNING picked.position, picked.turn, job.rate_key, {TAKEN}
), paid AS (
    INSERT INTO django_reliable_jobs_pace (key, paid_until)
    SELECT started.key, {NOW} + make_interval(secs => pace.ahead + started.jobs * pace.spacing)
      FROM (SELECT counts_for AS key, count(*) AS jobs FROM taken
             WHERE counts_for IS NOT NULL AND %(paced)s GROUP BY counts_for) started
     CROSS JOIN LATERAL {PACE.format("started.key")} pace
        ON CONFLICT (key) DO UPDATE SET paid_until = excluded.paid_until
)
SELECT position, turn, {_FIELDS} FROM taken ORDER BY position
"""

# Jobs without limits, of queues that have one: from the ordinary index, no more than the queue has places.
_CAPPED_ARMS = f"""(
    SELECT given.queue_name, given.priority, given.due, given.id, given.position,
           greatest(least(given.share, {QUEUE_PLACES.format("given.queue_name")}
                                       - {QUEUE_PLACES_TAKEN.format("given.queue_name")}), 0) AS share
      FROM {ARMS.format("given")}) arm"""
CLAIM_CAPPED = f"""
WITH {claim_from(_CAPPED_ARMS, IS_OPEN.format("arm"))}
SELECT position, {_FIELDS} FROM taken AS taken(position, {_FIELDS}) ORDER BY position
"""

# What the claims pass over because somebody holds its row.
LOCK_JOB = f"""
SELECT job.queue_name, {LINE}, job.concurrency_key, job.rate_key, job.serial_key,
       {QUEUE_PLACES.format("job.queue_name")} IS NOT NULL, job.priority, job.id, 0, job.losses > 0, job.run_after::text
  FROM django_reliable_jobs_job job WHERE job.id = %(id)s AND job.status = 'READY' FOR NO KEY UPDATE OF job
"""


def claim_lines(
    using: str, worker_id: int, lines: Sequence[Line], *, limit: int, free: int, alone: bool, is_paced: bool = True
) -> list[tuple[Line, ClaimedJob]]:
    """Claim at most `limit` jobs from lines in this order; return each with its line.

    `free` and `alone` as in `exchange`. A line whose key somebody else claims under at this moment is passed over.
    """
    with short_transaction(using) as cursor:
        locked = _lock(cursor, lines, most=2 * limit)
        if not locked:
            return []
        return _claim_lines(cursor, worker_id, locked, limit=limit, free=free, alone=alone, paced=is_paced)


def claim_capped(
    using: str, worker_id: int, arms: Sequence[Arm], *, limit: int, free: int, alone: bool
) -> list[ClaimedJob]:
    """Claim jobs without limits from queues that have one."""
    with short_transaction(using) as cursor:
        return _claim_capped(cursor, worker_id, arms, limit=limit, free=free, alone=alone)


def claim_passed_over(using: str, worker_id: int, job_id: int, *, patience: float) -> ClaimedJob | None:
    """Do for a limited job, or one of a queue with a limit, what `claim.claim_passed_over` does for others.

    Its keys are locked after its row, against the order; but nobody waits for them.
    """
    how: dict[str, Any] = {"limit": 1, "free": 1, "alone": True}
    try:
        with short_transaction(using, lock_timeout=patience) as cursor:
            cursor.execute(LOCK_JOB, {"id": job_id})
            row = cursor.fetchone()
            if row is None:
                return None
            line, due = Line._make(row[:-1]), row[-1]
            if line.concurrency_key or line.rate_key or line.serial_key:
                locked = _lock(cursor, [line], most=1)
                return next((job for _, job in _claim_lines(cursor, worker_id, locked, paced=True, **how)), None)
            arm = Arm(line.queue_name, line.priority, 1, due, line.job_id - 1)
            return next(iter(_claim_capped(cursor, worker_id, [arm], **how)), None)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) == "55P03":  # lock_not_available
            return None
        raise


def _lock(cursor: CursorWrapper, lines: Sequence[Line], *, most: int) -> list[Line]:
    parameters: dict[str, Any] = {
        "queues": [line.queue_name if line.is_capped else None for line in lines],
        "concurrency_keys": [line.concurrency_key for line in lines],
        "rate_keys": [line.rate_key for line in lines],
        "serial_keys": [line.serial_key for line in lines],
        "most": most,
    }
    cursor.execute(LOCK, parameters)
    return [lines[position - 1] for (position,) in cursor.fetchall()]


def _claim_lines(
    cursor: CursorWrapper, worker_id: int, lines: Sequence[Line], **how: Any
) -> list[tuple[Line, ClaimedJob]]:
    parameters: dict[str, Any] = {
        "moment": clock.moment(),
        "worker_id": worker_id,
        "queues": [line.queue_name for line in lines],
        "lines": [line.text for line in lines],
        "concurrency_keys": [line.concurrency_key for line in lines],
        "rate_keys": [line.rate_key for line in lines],
        "serial_keys": [line.serial_key for line in lines],
        "capped": [line.is_capped for line in lines],
    }
    cursor.execute(CLAIM_LINES, {**parameters, **how})
    return [(lines[turn - 1], ClaimedJob._make(row)) for _, turn, *row in cursor.fetchall()]


def _claim_capped(cursor: CursorWrapper, worker_id: int, arms: Sequence[Arm], **how: Any) -> list[ClaimedJob]:
    names = list(dict.fromkeys(arm.queue_name for arm in arms))
    nothing = [None] * len(names)
    keys: dict[str, Any] = {"queues": names, "concurrency_keys": nothing, "rate_keys": nothing, "serial_keys": nothing}
    cursor.execute(LOCK, {**keys, "most": len(names)})
    locked = {names[position - 1] for (position,) in cursor.fetchall()}
    mine = [arm for arm in arms if arm.queue_name in locked]
    if not mine:
        return []
    cursor.execute(CLAIM_CAPPED, claim_parameters(worker_id, mine, **how))
    return [ClaimedJob._make(row[1:]) for row in cursor.fetchall()]
