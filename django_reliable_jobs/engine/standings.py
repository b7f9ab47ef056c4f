"""How each schedule stands, what runs where, who leads: what an overview shows. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import schedule_history, unstarted
from django_reliable_jobs.engine.schedule_history import LastJob
from django_reliable_jobs.engine.schedules import OFFICE
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.engine.unstarted import Waiting
from django_reliable_jobs.models import Schedule, Slot
from django_reliable_jobs.models.schedule import is_paused

_NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"
LOOK_BACK = timedelta(hours=24)
MOST_SCHEDULES = 1000  # that are looked at, in some 0.2 s
MOST_SLOTS = 300  # of a schedule that are looked at
MOST_RUNNING = 100

# Why a slot has no job, if that may be news to somebody: a pause that is over may be another person's.
LEFT_OUT = (Slot.Reason.OVERLAP.value, Slot.Reason.DUPLICATE.value, Slot.Reason.PAUSED.value)
TROUBLE = (Slot.Reason.DEADLINE.value, Slot.Reason.MISFIRE.value, Slot.Reason.LIMIT.value, *LEFT_OUT)

# Never begun, and too late to begin: a worker that met it cancelled it.
IS_EXPIRED = """job.status = 'CANCELLED' AND job.attempt = 0
                  AND least(job.expires_at, job.start_before) <= job.finished_at"""
_WORST = "(array_agg({} ORDER BY reason = ANY(%(left_out)s::text[]), slot DESC))[1]"
_ENDED = f"""
       SELECT count(*) AS jobs, max(finished_at) AS last, max(id) AS id,
              (array_agg(reason ORDER BY finished_at DESC))[1] AS reason
         FROM (SELECT id, finished_at, reason FROM django_reliable_jobs_job job
                WHERE job.schedule_id = given.id AND {{}} AND job.finished_at > {_NOW} - %(back)s::interval
                ORDER BY job.finished_at DESC LIMIT {MOST_SLOTS}) ended"""
# For each schedule a few descents of its own indexes, none longer than MOST_SLOTS. Its newest slot is news however old
# it is: until the next one, nothing has run.
LATELY = f"""
SELECT given.id, absent.slots, absent.last, absent.reason, absent.decided_at,
       span.last, span.count, span.reason, span.decided_at,
       dead.jobs, dead.last, dead.id, dead.reason, expired.jobs, expired.last, expired.id, expired.reason
  FROM unnest(%(ids)s::bigint[]) AS given(id)
  LEFT JOIN LATERAL (
       SELECT slot FROM django_reliable_jobs_slot slot
        WHERE slot.schedule_id = given.id ORDER BY slot.slot DESC LIMIT 1) newest ON true
 CROSS JOIN LATERAL (SELECT {_NOW} - %(back)s::interval AS day, least({_NOW} - %(back)s::interval, newest.slot) AS span,
                            coalesce(newest.slot, '-infinity') AS newest) since
 CROSS JOIN LATERAL (
       SELECT count(*) AS slots, {_WORST.format("slot")} AS last, {_WORST.format("reason")} AS reason,
              {_WORST.format("decided_at")} AS decided_at
         FROM (SELECT slot, reason, decided_at FROM django_reliable_jobs_slot slot
                WHERE slot.schedule_id = given.id AND slot.slot >= since.span
                ORDER BY slot.slot DESC LIMIT {MOST_SLOTS}) recent
        WHERE reason = ANY(%(trouble)s::text[])) absent
  LEFT JOIN LATERAL (
       SELECT last, count, reason, decided_at FROM django_reliable_jobs_slotrange span
        WHERE span.schedule_id = given.id AND span.last > least(since.day, since.newest)
          AND span.reason = ANY(%(trouble)s::text[])
        ORDER BY span.last DESC LIMIT 1) span ON true
 CROSS JOIN LATERAL ({_ENDED.format("job.status = 'DEAD'")}) dead
 CROSS JOIN LATERAL ({_ENDED.format(IS_EXPIRED)}) expired
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
    decided: datetime


class Failure(NamedTuple):
    """Jobs of the last day that died, or expired: how many, the newest, and what it said."""

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
    expired: Failure | None
    waiting: Waiting | None

    def without_words_of_jobs(self) -> Standing:
        """Return the same without what its jobs said of themselves, which may be of their arguments."""
        return replace(
            self,
            last_job=self.last_job and self.last_job._replace(reason=""),
            failure=self.failure and self.failure._replace(reason=""),
            waiting=self.waiting and self.waiting._replace(reason=""),
        )


# absent: it should have run; stuck: its job should have started; skipped: a slot was left out as the schedule says.
HEALTHS = (
    *("broken", "overdue", "absent", "stuck", "failed", "retrying", "skipped", "cancelled", "paused"),
    *("well", "new", "ended"),
)


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
    waiting = unstarted.of_schedules(using, ids)
    found = [
        _judged(Standing(row, "", last.get(row.pk), *lately[row.pk], waiting.get(row.pk)), now)
        for row in rows[:MOST_SCHEDULES]
    ]
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


def _lately(using: str, ids: list[int]) -> dict[int, tuple[Absence | None, Failure | None, Failure | None]]:
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
    return {
        row[0]: (
            _absence(row[1:5], row[5:9]),
            Failure(*row[9:13]) if row[9] else None,
            Failure(*row[13:17]) if row[13] else None,
        )
        for row in rows
    }


def _absence(slots: Sequence[Any], span: Sequence[Any]) -> Absence | None:
    """Return the worst of single slots (count, last, reason, decided) and a range (last, count, reason, decided)."""
    single = None if slots[1] is None else Absence(*slots)
    if span[0] is None:
        return single
    total = None if span[1] is None else slots[0] + span[1]
    if single is None or span[0] > single.last or single.reason in LEFT_OUT:
        return Absence(total, span[0], span[2], span[3])
    return single._replace(slots=total)


def _judged(standing: Standing, now: datetime) -> Standing:
    return replace(standing, health=_health(standing, now))


def _health(standing: Standing, now: datetime) -> str:
    schedule, last, absence = standing.schedule, standing.last_job, standing.absence
    grace = timedelta(seconds=settings.MISFIRE_GRACE_SECONDS)
    verdicts = {
        "broken": schedule.error,
        "paused": is_paused(schedule, now),
        "overdue": schedule.next_run_at is not None and schedule.next_run_at < now - grace,
        "absent": standing.expired is not None or (absence is not None and absence.reason not in LEFT_OUT),
        "stuck": standing.waiting is not None and standing.waiting.is_due,
        "failed": standing.failure is not None or (last is not None and last.status == "DEAD"),
        "retrying": standing.waiting is not None,
        "skipped": absence is not None,
        "cancelled": last is not None and last.status == "CANCELLED",
        "ended": schedule.next_run_at is None,
        "new": last is None,
    }
    return next((name for name, holds in verdicts.items() if holds), "well")
