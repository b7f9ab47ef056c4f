"""Jobs for slots of the past, because a person asked for them: at most one per slot, whatever was decided before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django_reliable_jobs import clock
from django_reliable_jobs.engine import slots
from django_reliable_jobs.engine.slots import NOW
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.exceptions import InvalidSchedule, UnknownSchedule
from django_reliable_jobs.models import Schedule

MOST = 1000  # slots of one call, which is one transaction

# A slot that has a reason and no job may get one now; a tick may not do that.
TAKE = f"""
INSERT INTO django_reliable_jobs_slot AS slot (schedule_id, slot, outcome, reason, job_id, decided_at)
SELECT %(id)s, given.slot, 'job', '', nextval(pg_get_serial_sequence('django_reliable_jobs_job', 'id')), {NOW}
  FROM unnest(%(slots)s::timestamptz[]) AS given(slot) ORDER BY given.slot
    ON CONFLICT (schedule_id, slot) DO UPDATE
   SET outcome = 'job', reason = '', job_id = excluded.job_id, decided_at = excluded.decided_at
 WHERE slot.job_id IS NULL
RETURNING slot.slot, slot.job_id
"""

WITH_JOB = """
SELECT slot FROM django_reliable_jobs_slot
 WHERE schedule_id = %(id)s AND slot = ANY(%(slots)s::timestamptz[]) AND job_id IS NOT NULL
"""


@dataclass(frozen=True)
class Backfill:
    """What a backfill did, or would do: slots that get a job, and slots that had one before."""

    slots: list[datetime]
    had_job: list[datetime]
    job_ids: list[int]  # empty in a dry run


def backfill(using: str, schedule_id: int, *, start: datetime, end: datetime, dry_run: bool = False) -> Backfill:
    """Make a job for each slot from `start` to `end`, both included, that has none.

    The jobs run one after another unless overlap is allowed. Slots go by the schedule's rule as it is now. Raises
    InvalidSchedule for a span that ends in the future, begins at or below the horizon (the record of what ran there is
    gone), or holds more than MOST slots.
    """
    with short_transaction(using):
        rows = Schedule.objects.using(using).select_for_update(no_key=True).filter(pk=schedule_id)
        schedule = rows.first()
        if schedule is None:
            raise UnknownSchedule(f"there is no schedule with the id {schedule_id}")
        template = slots.template_of(using, schedule)
        wanted = _wanted(using, schedule, start, end)
        had_job = _with_job(using, schedule, wanted)
        missing = [slot for slot in wanted if slot not in had_job]
        if dry_run or not missing:
            return Backfill(missing, sorted(had_job), [])
        with engine_cursor(using) as cursor:
            cursor.execute(TAKE, {"moment": clock.moment(), "id": schedule.pk, "slots": missing})
            taken = sorted(cursor.fetchall())
        made = slots.insert_jobs(using, [{**template, "slot": slot, "id": job_id} for slot, job_id in taken])
        return Backfill([slot for slot, job_id in taken if job_id in made], sorted(had_job), made)


def _wanted(using: str, schedule: Schedule, start: datetime, end: datetime) -> list[datetime]:
    if end < start:
        raise InvalidSchedule("end", "the span ends before it begins")
    if end > slots.now(using):
        raise InvalidSchedule(
            "end", f"{end.isoformat()} lies in the future: its slots will be decided when they are due"
        )
    if schedule.horizon is not None and start <= schedule.horizon:
        raise InvalidSchedule(
            "start",
            f"what ran up to {schedule.horizon.isoformat()} is not on record any more (SLOT_RETENTION): begin later",
        )
    timeline = slots.timeline_of(schedule)
    wanted: list[datetime] = []
    slot = timeline.last_until(end)
    while slot is not None and slot >= start:
        if len(wanted) == MOST:
            raise InvalidSchedule("start", f"there are more than {MOST} slots in that span: take it in parts")
        wanted.append(slot)
        slot = timeline.last_before(slot)
    return wanted[::-1]


def _with_job(using: str, schedule: Schedule, wanted: Sequence[datetime]) -> set[datetime]:
    with engine_cursor(using) as cursor:
        cursor.execute(WITH_JOB, {"id": schedule.pk, "slots": list(wanted)})
        return {slot for (slot,) in cursor.fetchall()}
