"""How each schedule stands, what runs where, who leads: what an overview shows. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import schedule_history
from django_reliable_jobs.engine.schedule_history import LastJob
from django_reliable_jobs.engine.schedules import OFFICE
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Schedule, Slot
from django_reliable_jobs.models.schedule import is_paused

_NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"
LOOK_BACK = timedelta(hours=24)
MOST_SCHEDULES = 200
MOST_SLOTS = 300  # of a schedule that are looked at
MOST_RUNNING = 100

# Why a slot has no job, if that may be news to somebody; the other reasons are what a person or the schedule asked for.
LEFT_OUT = (Slot.Reason.OVERLAP.value, Slot.Reason.DUPLICATE.value)
TROUBLE = (Slot.Reason.DEADLINE.value, Slot.Reason.MISFIRE.value, Slot.Reason.LIMIT.value, *LEFT_OUT)

# For each schedule a few descents of its own indexes, none longer than MOST_SLOTS.
LATELY = f"""
SELECT given.id, absent.slots, absent.last, absent.reason, span.last, span.count, span.reason,
       dead.jobs, dead.last, dead.id, dead.reason
  FROM unnest(%(ids)s::bigint[]) AS given(id)
 CROSS JOIN LATERAL (
       SELECT count(*) AS slots, (array_agg(slot ORDER BY reason = ANY(%(left_out)s::text[]), slot DESC))[1] AS last,
              (array_agg(reason ORDER BY reason = ANY(%(left_out)s::text[]), slot DESC))[1] AS reason
         FROM (SELECT slot, reason FROM django_reliable_jobs_slot slot
                WHERE slot.schedule_id = given.id AND slot.slot > {_NOW} - %(back)s::interval
                ORDER BY slot.slot DESC LIMIT {MOST_SLOTS}) recent
        WHERE reason = ANY(%(trouble)s::text[])) absent
  LEFT JOIN LATERAL (
       SELECT last, count, reason FROM django_reliable_jobs_slotrange span
        WHERE span.schedule_id = given.id AND span.last > {_NOW} - %(back)s::interval
          AND span.reason = ANY(%(trouble)s::text[])
        ORDER BY span.last DESC LIMIT 1) span ON true
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs, max(finished_at) AS last, max(id) AS id,
              (array_agg(reason ORDER BY finished_at DESC))[1] AS reason
         FROM (SELECT id, finished_at, reason FROM django_reliable_jobs_job job
                WHERE job.schedule_id = given.id AND job.status = 'DEAD'
                  AND job.finished_at > {_NOW} - %(back)s::interval
                ORDER BY job.finished_at DESC LIMIT {MOST_SLOTS}) died) dead
"""

RUNNING = f"""
SELECT id, task, worker_id, started_at FROM django_reliable_jobs_job
 WHERE status = 'RUNNING' ORDER BY worker_id, started_at LIMIT {MOST_RUNNING}
"""

LEADER = f"""
SELECT host, pid, elected_at, expires_at > clock_timestamp() FROM django_reliable_jobs_leader WHERE name = '{OFFICE}'
"""


class Absence(NamedTuple):
    """Slots of the last day that got no job: how many (None: more than were counted), the worst of them, and why."""

    slots: int | None
    last: datetime
    reason: str  # of Slot.Reason


class Failure(NamedTuple):
    """Jobs of the last day that died: how many, the newest, and what it said."""

    jobs: int
    last: datetime
    job_id: int
    reason: str


@dataclass(frozen=True)
class Standing:
    """One schedule now."""

    schedule: Schedule
    health: str  # one of HEALTHS
    last_job: LastJob | None
    absence: Absence | None
    failure: Failure | None


# skipped: a slot was left out as the schedule says; absent: it should have run.
HEALTHS = ("broken", "overdue", "absent", "failed", "skipped", "paused", "well", "ended")


class Running(NamedTuple):
    """A job that runs now."""

    id: int
    task: str
    worker_id: int
    started_at: datetime


class Leading(NamedTuple):
    """The scheduler that leads, or led last."""

    host: str
    pid: int
    elected_at: datetime
    is_current: bool


def schedules(using: str, now: datetime) -> tuple[list[Standing], bool]:
    """Return how schedules stand, those in trouble first, and whether there are more than were looked at."""
    rows = list(Schedule.objects.using(using).order_by("name")[: MOST_SCHEDULES + 1])
    ids = [row.pk for row in rows[:MOST_SCHEDULES]]
    last, lately = schedule_history.last_jobs(using, ids), _lately(using, ids)
    found = [_standing(row, last.get(row.pk), *lately[row.pk], now) for row in rows[:MOST_SCHEDULES]]
    return sorted(found, key=lambda each: HEALTHS.index(each.health)), len(rows) > MOST_SCHEDULES


def running(using: str) -> list[Running]:
    """Return jobs that run now, at most MOST_RUNNING, by worker, the longest first."""
    with engine_cursor(using) as cursor:
        cursor.execute(RUNNING)
        return [Running(*row) for row in cursor.fetchall()]


def leader(using: str) -> Leading | None:
    """Return the scheduler that leads or led last; None: there has been none."""
    with engine_cursor(using) as cursor:
        cursor.execute(LEADER)
        row = cursor.fetchone()
    return None if row is None else Leading(*row)


def _lately(using: str, ids: list[int]) -> dict[int, tuple[Absence | None, Failure | None]]:
    parameters: dict[str, Any] = {
        "ids": ids,
        "moment": clock.moment(),
        "back": LOOK_BACK,
        "trouble": list(TROUBLE),
        "left_out": list(LEFT_OUT),
    }
    with engine_cursor(using) as cursor:
        cursor.execute(LATELY, parameters)
        rows = cursor.fetchall()
    return {row[0]: (_absence(*row[1:7]), Failure(*row[7:11]) if row[7] else None) for row in rows}


def _absence(
    slots: int,
    last: datetime | None,
    reason: str | None,
    range_last: datetime | None,
    range_slots: int | None,
    range_reason: str | None,
) -> Absence | None:
    if range_last is None or range_reason is None:
        return None if last is None or reason is None else Absence(slots, last, reason)
    total = None if range_slots is None else slots + range_slots
    if last is None or reason is None or range_last > last or reason in LEFT_OUT:
        return Absence(total, range_last, range_reason)
    return Absence(total, last, reason)


def _standing(
    schedule: Schedule, last: LastJob | None, absence: Absence | None, failure: Failure | None, now: datetime
) -> Standing:
    grace = timedelta(seconds=settings.MISFIRE_GRACE_SECONDS)
    if schedule.error:
        health = "broken"
    elif is_paused(schedule, now):
        health = "paused"
    elif schedule.next_run_at is not None and schedule.next_run_at < now - grace:
        health = "overdue"
    elif absence is not None and absence.reason not in LEFT_OUT:
        health = "absent"
    elif failure is not None or (last is not None and last.status == "DEAD"):
        health = "failed"
    elif absence is not None:
        health = "skipped"
    else:
        health = "well" if schedule.next_run_at else "ended"
    return Standing(schedule, health, last, absence, failure)
