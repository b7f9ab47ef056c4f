"""What a leading scheduler does beside ticking: forget old slots and jobs, and notice rows that were changed outside.

Each function takes one batch of schedules by id and returns the last id, from which the next call goes on; None at the
end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import references, slots, successes
from django_reliable_jobs.engine.deleting import DELETE_OLD_JOBS
from django_reliable_jobs.engine.slots import NOW
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.models import Schedule

logger = logging.getLogger("django_reliable_jobs")

BATCH = 500
MOST_SLOTS = 1000  # of one schedule in one batch
MOST_JOBS = 100  # of one schedule, status and batch
STATEMENT_SECONDS = 30.0

# The horizon rises with the rows that go: of slots up to it nothing is known any more, so none is ever decided again.
PRUNE_SLOTS = f"""
WITH batch AS MATERIALIZED (
    SELECT id, least(decided_until, {NOW} - %(age)s) AS edge FROM django_reliable_jobs_schedule
     WHERE id > %(after)s ORDER BY id LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED
), old AS MATERIALIZED (
    SELECT batch.id, CASE WHEN oldest.count = %(most)s THEN oldest.last ELSE batch.edge END AS edge
      FROM batch CROSS JOIN LATERAL (
           SELECT count(*) AS count, max(found.slot) AS last
             FROM (SELECT slot FROM django_reliable_jobs_slot
                    WHERE schedule_id = batch.id AND slot <= batch.edge ORDER BY slot LIMIT %(most)s) found) oldest
     WHERE oldest.count > 0 OR EXISTS (
           SELECT 1 FROM django_reliable_jobs_slotrange given
            WHERE given.schedule_id = batch.id AND given.last <= batch.edge)
), raised AS (
    UPDATE django_reliable_jobs_schedule schedule SET horizon = greatest(schedule.horizon, old.edge)
      FROM old WHERE schedule.id = old.id
), ranges AS (
    DELETE FROM django_reliable_jobs_slotrange given USING old
     WHERE given.schedule_id = old.id AND given.last <= old.edge
), slots AS (
    DELETE FROM django_reliable_jobs_slot slot USING old WHERE slot.schedule_id = old.id AND slot.slot <= old.edge
)
SELECT max(id) FROM batch
"""

_BEYOND = """
(SELECT job.id FROM django_reliable_jobs_job job
  WHERE job.schedule_id = batch.id AND job.status = '{status}' AND batch.{keep} IS NOT NULL AND {{is_free}}
  ORDER BY job.finished_at DESC OFFSET batch.{keep} LIMIT %(most)s)
"""
PRUNE_JOBS = f"""
WITH batch AS MATERIALIZED (
    SELECT id, keep_succeeded, keep_failed FROM django_reliable_jobs_schedule
     WHERE id > %(after)s AND (keep_succeeded IS NOT NULL OR keep_failed IS NOT NULL) ORDER BY id LIMIT %(batch)s
), beyond AS MATERIALIZED (
    SELECT found.id FROM batch CROSS JOIN LATERAL (
        {_BEYOND.format(status="SUCCEEDED", keep="keep_succeeded")}
         UNION ALL {_BEYOND.format(status="DEAD", keep="keep_failed")}) found
), old AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job
     WHERE id IN (SELECT id FROM beyond) AND status IN ('SUCCEEDED', 'DEAD') FOR UPDATE SKIP LOCKED
), {DELETE_OLD_JOBS}, deleted AS (
    DELETE FROM django_reliable_jobs_job WHERE id IN (SELECT id FROM old)
)
SELECT max(id) FROM batch
"""

# Only if nobody decided or changed it since it was read.
REPLAN = """
UPDATE django_reliable_jobs_schedule SET next_run_at = %(next_run_at)s
 WHERE id = %(id)s AND next_run_at IS NOT DISTINCT FROM %(was)s AND decided_until = %(decided_until)s
"""


def prune_slots(using: str, after: int = 0) -> int | None:
    """Delete decided slots older than SLOT_RETENTION, and raise the horizon, below which no slot is decided again."""
    if settings.SLOT_RETENTION is None:
        return None
    return _sweep(using, PRUNE_SLOTS, after=after, age=settings.SLOT_RETENTION, most=MOST_SLOTS)


def prune_jobs(using: str, after: int = 0) -> int | None:
    """Delete ended jobs beyond what their schedule keeps of them, and to which no row of the project refers."""
    successes.note(using)
    is_free = references.is_free(references.find(using))
    return _sweep(using, PRUNE_JOBS.format(is_free=is_free), after=after, most=MOST_JOBS)


def replan(using: str, after: int = 0) -> int | None:
    """Correct the next run of schedules whose row was changed by SQL, or whose zone another database knows anew."""
    with short_transaction(using, statement_timeout=STATEMENT_SECONDS) as cursor:
        rows = Schedule.objects.using(using).filter(Q(paused_at=None) | Q(resume_at__isnull=False), pk__gt=after)
        found = list(rows.order_by("pk")[:BATCH])
        for schedule in found:
            try:
                planned = slots.plan(
                    slots.timeline_of(schedule),
                    schedule.decided_until,
                    schedule.resume_at,
                    is_paused=schedule.paused_at is not None,
                )
            except Exception:  # noqa: S112 - the tick that finds it due says what is wrong with it
                continue
            if planned["next_run_at"] == schedule.next_run_at:
                continue
            parameters = {"id": schedule.pk, "was": schedule.next_run_at, "decided_until": schedule.decided_until}
            cursor.execute(REPLAN, {**parameters, "next_run_at": planned["next_run_at"]})
            if cursor.rowcount:
                logger.warning(
                    "schedule %s runs next at %s, and not at %s: its row or the time zone database was changed",
                    schedule.name,
                    planned["next_run_at"],
                    schedule.next_run_at,
                )
    return found[-1].pk if len(found) == BATCH else None


def _sweep(using: str, statement: str, **parameters: Any) -> int | None:
    with short_transaction(using, statement_timeout=STATEMENT_SECONDS) as cursor:
        cursor.execute(statement, {"moment": clock.moment(), "batch": BATCH, **parameters})
        last: int | None = cursor.fetchone()[0]
        return last


@dataclass(frozen=True)
class Moved:
    """A schedule whose next runs are no longer those that were planned when it was last decided."""

    name: str
    planned: list[datetime]
    now: list[datetime]


def find_moved(using: str) -> list[Moved]:
    """Return the schedules whose next runs another version of croniter or of the time zone database has moved."""
    moved = []
    rows = Schedule.objects.using(using).filter(Q(paused_at=None) | Q(resume_at__isnull=False)).order_by("name")
    for schedule in rows.iterator():
        planned = [datetime.fromisoformat(each) for each in schedule.planned]
        after = max(schedule.decided_until, schedule.resume_at or schedule.decided_until)
        try:
            runs = slots.timeline_of(schedule).first_few(after, slots.PLANNED)
        except InvalidRecurrence:
            runs = []
        if runs != planned:
            moved.append(Moved(schedule.name, planned, runs))
    return moved
