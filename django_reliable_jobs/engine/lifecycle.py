"""Every way in which an attempt or a job ends. Guarded by the token: a replaced attempt changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_reliable_jobs import clock
from django_reliable_jobs.engine import arrays, endings_of_jobs, waits
from django_reliable_jobs.engine.cancelling import WITH_PARENT, Cancelled, cancel, cancel_children
from django_reliable_jobs.engine.endings_of_jobs import Ended
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.engine.undoing import HAS_TO_UNDO
from django_reliable_jobs.engine.wakeup import notify_idle
from django_reliable_jobs.models import Job

__all__ = ["END", "SUCCEED", "Cancelled", "Ending", "Outcome", "cancel", "end", "sort_out", "succeed_parameters"]

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"
ASKED_REASON = "coalesce(nullif(asked.reason, ''), 'cancelled on request')"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How one attempt ended, decided by `processes.judging` if an error ended it, and recorded here."""

    status: str
    attempt: str | None = None  # the outcome in the attempt's row; None: no row
    delay: float | None = None  # seconds until it is due again; None: it keeps its place in the line
    run_after: datetime | None = None  # the moment at which it is due again, by the database's clock
    uses_attempt: bool = True
    losses: int = 0  # consecutive losses of its worker, this one included
    result: str | None = None  # JSON
    reason: str | None = None
    error_class: str = ""
    error_message: str = ""
    traceback: str = ""
    is_recorded: bool = False  # in the transaction of the task itself
    compensation: str | None = None  # what was to be undone is: done | failed; it ends as it was to end
    has_begun: bool = False  # without an attempt's row: it waits, or a step of it is put off


class Ending(NamedTuple):
    """An outcome and the claim that it belongs to. Ages are seconds before now, from a monotonic clock."""

    job_id: int
    token: int
    outcome: Outcome
    started_ago: float = 0.0
    ended_ago: float = 0.0
    batch_id: int | None = None  # for the exchange, which reads it of no row


# The usual end. Row locks in the order of ids; SKIP LOCKED, so that one row that somebody holds stops no other. Rows
# are found by id alone, and their status is looked at afterwards: as a condition, it lets PostgreSQL take the index of
# running jobs instead, whose dead entries are many times as many as the living while an old snapshot keeps them.
SUCCEED = f"""
mine AS MATERIALIZED (
    SELECT job.id, job.status, given.result, given.started_ago, given.ended_ago
      FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(results)s::text[], %(started_ago)s::float8[],
                  %(ended_ago)s::float8[]) AS given(id, token, result, started_ago, ended_ago)
      JOIN django_reliable_jobs_job job ON job.id = given.id
     WHERE job.token = given.token
     ORDER BY job.id FOR NO KEY UPDATE OF job SKIP LOCKED
), succeeded AS (
    UPDATE django_reliable_jobs_job job
       SET status = 'SUCCEEDED', result = mine.result::jsonb, losses = 0, reason = NULL,
           started_at = {_NOW} - make_interval(secs => mine.started_ago),
           finished_at = {_NOW} - make_interval(secs => mine.ended_ago)
      FROM mine WHERE job.id = mine.id AND mine.status = 'RUNNING'
    RETURNING job.id
)"""

LOCK_MINE = """
WITH mine AS MATERIALIZED (
    SELECT job.id, job.task, job.meta, job.batch_id, job.status
      FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS given(id, token)
      JOIN django_reliable_jobs_job job ON job.id = given.id
     WHERE job.token = given.token
     ORDER BY job.id FOR NO KEY UPDATE OF job SKIP LOCKED
)
SELECT id, task, meta, batch_id FROM mine WHERE status = 'RUNNING'
"""

# A statement of its own after the lock, so that its snapshot sees a cancel request that committed while it waited, and
# every step that the attempt had kept. What has steps to undo does not end yet: it is ready for that.
END = f"""
WITH judged AS (
    SELECT given.*, job.run, job.compensation AS was, {ASKED_REASON} AS asked_reason,
           asked.job_id IS NOT NULL AND given.status <> 'SUCCEEDED' AND job.compensation <> 'running' AS is_asked,
           coalesce(asked.with_children, false) AS with_children,
           CASE WHEN given.compensation IS NOT NULL THEN coalesce(job.ends_as, given.status)
                WHEN asked.job_id IS NOT NULL AND given.status <> 'SUCCEEDED' AND job.compensation <> 'running'
                THEN 'CANCELLED' ELSE given.status END AS ends_as
      FROM unnest(%(ids)s::bigint[], %(statuses)s::text[], %(delays)s::float8[], %(gives_back)s::int[],
                  %(losses)s::int[], %(reasons)s::text[], %(results)s::text[],
                  %(has_begun)s::bool[], %(run_after)s::timestamptz[], %(compensations)s::text[])
           AS given(id, status, delay, gives_back, losses, reason, result, has_begun, run_after, compensation)
      JOIN django_reliable_jobs_job job ON job.id = given.id
      LEFT JOIN django_reliable_jobs_cancelrequest asked ON asked.job_id = given.id
), given AS MATERIALIZED (
    SELECT judged.*, ends_as IN ('DEAD', 'CANCELLED') AND was = 'none' AND {HAS_TO_UNDO.format("judged")} AS must_undo
      FROM judged
), ended AS (
    UPDATE django_reliable_jobs_job job
       SET status = CASE WHEN given.must_undo THEN 'READY' ELSE given.ends_as END,
           compensation = CASE WHEN given.must_undo THEN 'running'
                               WHEN given.was = 'running' AND given.ends_as IN ('DEAD', 'CANCELLED')
                               THEN coalesce(given.compensation, 'failed')
                               ELSE coalesce(given.compensation, job.compensation) END,
           ends_as = CASE WHEN given.must_undo THEN given.ends_as WHEN given.compensation IS NULL THEN job.ends_as END,
           reason = CASE WHEN given.was = 'running' THEN job.reason
                         WHEN given.is_asked THEN given.asked_reason ELSE given.reason END,
           finished_at = CASE WHEN given.ends_as IN ('SUCCEEDED', 'DEAD', 'CANCELLED') AND NOT given.must_undo
                              THEN {_NOW} END,
           run_after = CASE WHEN given.must_undo THEN {_NOW} ELSE coalesce(
               greatest(given.run_after, {_NOW} + make_interval(secs => given.delay)), job.run_after) END,
           attempt = job.attempt - given.gives_back,
           expires_at = CASE WHEN given.has_begun OR given.must_undo THEN NULL ELSE job.expires_at END,
           start_before = CASE WHEN given.has_begun OR given.must_undo THEN NULL ELSE job.start_before END,
           losses = CASE WHEN given.must_undo THEN 0 ELSE given.losses END,
           result = given.result::jsonb
      FROM given WHERE job.id = given.id
    RETURNING job.id, job.status, job.attempt + given.gives_back AS number, job.claims, job.run, job.queue_name,
              CASE WHEN given.was = 'running' THEN job.compensation END AS compensation,
              given.is_asked AND given.with_children AS with_children
), recorded AS (
    INSERT INTO django_reliable_jobs_attempt
           (job_id, number, claim, run, outcome, started_at, finished_at, worker, error_class, error_message, traceback)
    SELECT ended.id, ended.number, ended.claims, ended.run, given.outcome,
           {_NOW} - make_interval(secs => given.started_ago), {_NOW} - make_interval(secs => given.ended_ago),
           %(worker)s, given.error_class, given.error_message, given.traceback
      FROM ended JOIN unnest(%(ids)s::bigint[], %(attempts)s::text[], %(started_ago)s::float8[],
                             %(ended_ago)s::float8[], %(error_classes)s::text[], %(error_messages)s::text[],
                             %(tracebacks)s::text[])
           AS given(id, outcome, started_ago, ended_ago, error_class, error_message, traceback) USING (id)
     WHERE given.outcome IS NOT NULL
), answered AS (
    DELETE FROM django_reliable_jobs_cancelrequest WHERE job_id = ANY(%(ids)s::bigint[])
)
SELECT ended.id, ended.status, ended.compensation, ended.with_children,
       CASE WHEN ended.status = 'READY' THEN {notify_idle("ended.queue_name")} END
  FROM ended
"""

SORT_OUT = """
SELECT job.token, job.status FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS given(id, token)
  JOIN django_reliable_jobs_job job ON job.id = given.id AND job.token = given.token
"""


def succeed_parameters(endings: Sequence[Ending]) -> dict[str, Any]:
    """Return what SUCCEED is executed with."""
    results = [each.outcome.result for each in endings]
    return {
        "ids": arrays.integers([each.job_id for each in endings]),
        "tokens": arrays.integers([each.token for each in endings]),
        "results": results if any(results) else None,  # unnest fills it up
        "started_ago": arrays.seconds([each.started_ago for each in endings]),
        "ended_ago": arrays.seconds([each.ended_ago for each in endings]),
    }


def end(using: str, endings: Sequence[Ending], *, worker: str) -> set[int]:
    """Record how attempts ended, with their attempt rows, in one transaction; return the ids of the jobs written.

    A job that is missing from the result was not written: `sort_out` tells why. A cancel request turns every end but
    success into CANCELLED. What a dead job's task names as `on_dead` is enqueued in the same transaction.
    """
    by_id = {each.job_id: each for each in endings}
    with short_transaction(using) as cursor:
        cursor.execute(LOCK_MINE, {"ids": list(by_id), "tokens": [each.token for each in by_id.values()]})
        locked = {job_id: rest for job_id, *rest in cursor.fetchall()}
        mine = [by_id[job_id] for job_id in locked]
        if not mine:
            return set()
        cursor.execute(END, _end_parameters(mine, worker))
        rows = cursor.fetchall()
        statuses = {row[0]: row[1] for row in rows}
        ended = [
            Ended(job_id, status, *locked[job_id])._replace(compensation=came_to)
            for job_id, status, came_to, *_ in rows
        ]
        if parents := [row[0] for row in rows if row[3]]:
            ended += cancel_children(using, cursor, parents, reason=WITH_PARENT)
        endings_of_jobs.ended(using, ended)
    if waiting := [job_id for job_id, status in statuses.items() if status == Job.Status.WAITING]:
        waits.wake_these(using, waiting)
    return set(statuses)


def _end_parameters(endings: Sequence[Ending], worker: str) -> dict[str, Any]:
    outcomes = [each.outcome for each in endings]
    return {
        "moment": clock.moment(),
        "worker": worker,
        "ids": [each.job_id for each in endings],
        "started_ago": [each.started_ago for each in endings],
        "ended_ago": [each.ended_ago for each in endings],
        "statuses": [each.status for each in outcomes],
        "delays": [None if each.delay is None else float(each.delay) for each in outcomes],
        "run_after": [each.run_after for each in outcomes],
        "gives_back": [0 if each.uses_attempt else 1 for each in outcomes],
        "losses": [each.losses for each in outcomes],
        "has_begun": [
            each.attempt is not None or each.has_begun for each in outcomes
        ],  # it was started in time, whatever comes later
        "compensations": [each.compensation for each in outcomes],
        "reasons": [each.reason for each in outcomes],
        "results": [each.result for each in outcomes],
        "attempts": [each.attempt for each in outcomes],
        "error_classes": [each.error_class[:255] for each in outcomes],
        "error_messages": [each.error_message for each in outcomes],
        "tracebacks": [each.traceback for each in outcomes],
    }


def sort_out(using: str, endings: Iterable[Ending]) -> tuple[list[Ending], list[Ending], list[Ending]]:
    """Tell apart the endings that were not written: (held by somebody just now, written before, replaced).

    Written before: the answer to an earlier statement was lost, not the statement. Replaced: the lease was lost and the
    job is somebody else's, or gone.
    """
    endings = list(endings)
    with engine_cursor(using) as cursor:
        cursor.execute(SORT_OUT, {"ids": [e.job_id for e in endings], "tokens": [e.token for e in endings]})
        status_of = dict(cursor.fetchall())
    held = [each for each in endings if status_of.get(each.token) == Job.Status.RUNNING]
    written = [each for each in endings if status_of.get(each.token) == each.outcome.status != Job.Status.RUNNING]
    known = {each.token for each in held} | {each.token for each in written}
    return held, written, [each for each in endings if each.token not in known]
