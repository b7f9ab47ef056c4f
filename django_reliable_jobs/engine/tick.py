"""The tick: the transaction that decides due slots and makes their jobs.

Any number of processes may tick at once, with whatever they believe about leadership or the time: a schedule's row is
locked and read in one statement, on the database's clock, and a slot's primary key lets it make one job at most. Due
schedules that somebody else decides at this moment are skipped. What fails is split down to the one schedule, in a
savepoint of its own: one that can't be decided keeps its cursor, says why, is tried again later, and stops no other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, transaction

from django_reliable_jobs import clock
from django_reliable_jobs.arguments import without_bad_characters
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import alerts, lifecycle, slots
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.engine.slots import NOW, Made, Record
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.exceptions import ReliableJobsError, UnknownTask
from django_reliable_jobs.models import Alert, Schedule
from django_reliable_jobs.slots import Dropped, LiveJobs, Policy, decide

logger = logging.getLogger("django_reliable_jobs")

BATCH = 50
LOCK_SECONDS = 2.0  # a caller that holds a unique key must not hold up all schedules
STATEMENT_SECONDS = 20.0
DECIDE_SECONDS = 2.0  # of the rows that are locked, what is not decided by then is left for the next tick
RETRY_BROKEN = timedelta(minutes=1)
RETRY_HELD_UP = timedelta(seconds=5)
MAX_ERROR = 2000

DUE = f"""
SELECT schedule.*, {NOW} AS now FROM django_reliable_jobs_schedule schedule
 WHERE schedule.next_run_at <= {NOW} AND (schedule.retry_at IS NULL OR schedule.retry_at <= {NOW})
 ORDER BY schedule.next_run_at, schedule.id LIMIT %(batch)s FOR NO KEY UPDATE OF schedule SKIP LOCKED
"""

# Broken ones are passed over: they are tried again at some later look.
NEXT_DUE = f"""
SELECT extract(epoch FROM next_run_at - {NOW})::float8 FROM django_reliable_jobs_schedule
 WHERE next_run_at IS NOT NULL AND retry_at IS NULL ORDER BY next_run_at LIMIT 1
"""

SET_BROKEN = f"""
UPDATE django_reliable_jobs_schedule
   SET error = %(error)s, error_at = coalesce(error_at, {NOW}), retry_at = {NOW} + %(pause)s
 WHERE id = %(id)s
RETURNING CASE WHEN %(was_held_up)s THEN set_config('lock_timeout', '50', true) END
"""


@dataclass(frozen=True)
class Missed:
    """Slots of a schedule that got no job, as they were decided too late."""

    schedule: Schedule
    slots: Dropped


@dataclass
class Tick:
    """What one tick did: how many schedules it decided, the ids of the jobs it made and of those it cancelled for them,
    the names of the broken, and the slots that were missed.
    """

    due: int = 0
    jobs: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)  # tasks of schedules that this process can't decide; another may
    missed: list[Missed] = field(default_factory=list)


def tick(using: str) -> Tick:
    """Decide the slots of at most BATCH schedules that are due now, and make their jobs."""
    done = Tick()
    with short_transaction(using, lock_timeout=LOCK_SECONDS, statement_timeout=STATEMENT_SECONDS):
        due = list(Schedule.objects.using(using).raw(DUE, {"moment": clock.moment(), "batch": BATCH}))
        live, records, began = _live_jobs(using, due), [], time.monotonic()
        for schedule in due:
            if done.due and time.monotonic() - began > DECIDE_SECONDS:  # years were missed
                break
            done.due += 1
            try:
                now: datetime = schedule.now  # type: ignore[attr-defined]
                records.append(_decide(using, schedule, now, live.get(schedule.pk, [])))
            except Exception as error:
                _set_broken(using, schedule, error, done)
        _write(using, records, done)
    return done


def _write(using: str, records: Sequence[Record], done: Tick) -> None:
    """Write decisions together; if that fails, each in a savepoint of its own, so that it fails for those that fail."""
    if not records:
        return
    try:
        with transaction.atomic(using=using):
            made = slots.record(using, records)
            jobs, cancelled = _make_jobs(using, records, made)
            missed = [Missed(each.schedule, drop) for each in records for drop in each.dropped if _is_missed(drop)]
            _note_missed(using, missed)
        done.jobs += jobs
        done.cancelled += cancelled
        done.missed += missed
    except Exception as error:
        if len(records) == 1:
            _set_broken(using, records[0].schedule, error, done)
        else:
            for each in records:
                _write(using, [each], done)


def _make_jobs(using: str, records: Sequence[Record], made: Sequence[Made]) -> tuple[list[int], list[int]]:
    """Return the jobs that were made, and those that were cancelled, as they were replaced."""
    by_schedule, cancelled = {each.schedule.pk: each for each in records}, []
    for pk, slot in {each.schedule_id: each.slot for each in made}.items():
        replaced, unique_hash = by_schedule[pk].replaced, by_schedule[pk].template["unique_hash"]
        # The new job would be a duplicate, and both would be lost: the old one goes on.
        if replaced and not (unique_hash and slots.is_key_held(using, unique_hash, replaced)):
            reason = f"replaced by the job of its schedule for {slot.isoformat()}"
            cancelled += lifecycle.cancel(using, replaced, reason=reason).cancelled
    jobs = [
        slots.job_of_slot(by_schedule[each.schedule_id].schedule, by_schedule[each.schedule_id].template, each)
        for each in made
    ]
    return slots.insert_jobs(using, jobs), cancelled


def seconds_until_due(using: str) -> float | None:
    """Return the seconds until the next slot of any schedule; None if there is none."""
    with engine_cursor(using) as cursor:
        cursor.execute(NEXT_DUE, {"moment": clock.moment()})
        row = cursor.fetchone()
    return None if row is None else float(row[0])


def _live_jobs(using: str, due: Sequence[Schedule]) -> dict[int, list[tuple[int, bool]]]:
    # A statement of its own after the locks, so that its snapshot sees what the last holder of a row committed.
    ids = [schedule.pk for schedule in due if schedule.overlap != Schedule.Overlap.ALLOW]
    return slots.live_jobs(using, ids) if ids else {}


def _decide(using: str, schedule: Schedule, now: datetime, live: Sequence[tuple[int, bool]]) -> Record:
    template = slots.template_of(using, schedule)
    timeline = slots.timeline_of(schedule)
    after, paused = schedule.decided_until, []
    if schedule.paused_at is not None and schedule.resume_at is not None:  # its end has come, else nothing were due
        paused = slots.undecided(schedule, schedule.resume_at, "paused")
        after = max(after, schedule.resume_at)
    begun = sum(has_begun for _, has_begun in live)
    decision = decide(timeline, after, now, _policy(schedule), LiveJobs(begun, len(live) - begun))
    _report(schedule, decision.dropped)
    return Record(
        schedule=schedule,
        timeline=timeline,
        decided_until=decision.newest or after,
        template=template,
        jobs=decision.jobs,
        dropped=[*paused, *decision.dropped],
        replaced=[job_id for job_id, _ in live] if decision.replaces else [],
    )


def _policy(schedule: Schedule) -> Policy:
    return Policy(
        overlap=schedule.overlap,  # type: ignore[arg-type]
        catch_up=schedule.catch_up,  # type: ignore[arg-type]
        catch_up_limit=schedule.catch_up_limit,
        start_deadline=schedule.start_deadline,
        grace=timedelta(seconds=settings.MISFIRE_GRACE_SECONDS),
    )


def _is_missed(dropped: Dropped) -> bool:
    return dropped.outcome == "missed"


def _note_missed(using: str, missed: Sequence[Missed]) -> None:
    if missed:
        happened = [
            Finding(
                kind=Alert.Kind.SLOT_MISSED,
                subject=each.schedule.name,
                message=f"The schedule {each.schedule.name} missed {_described(each.slots)} ({each.slots.reason}).",
                count=each.slots.count or 1000,
            )
            for each in missed
        ]
        alerts.note_all(using, happened)


def _described(dropped: Dropped) -> str:
    first, last = dropped.first.isoformat(), dropped.last.isoformat()
    number = "many" if dropped.count is None else dropped.count
    return f"the slot of {first}" if dropped.count == 1 else f"{number} slots from {first} to {last}"


def _report(schedule: Schedule, dropped: Sequence[Dropped]) -> None:
    for each in dropped:
        log = logger.warning if each.outcome == "missed" else logger.info
        log("schedule %s: %s %s (%s)", schedule.name, _described(each), each.outcome, each.reason)


def _set_broken(using: str, schedule: Schedule, error: Exception, done: Tick) -> None:
    done.broken.append(schedule.name)
    text = f"{type(error).__name__}: {error}"
    is_ours = isinstance(error, ReliableJobsError)
    if schedule.error != text:
        logger.error("schedule %s can't be decided: %s", schedule.name, text, exc_info=None if is_ours else error)
    if isinstance(error, UnknownTask):
        done.unknown.add(schedule.task)
    was_held_up = isinstance(error, DatabaseError)  # the others of this tick wait no longer than a moment
    parameters: dict[str, Any] = {
        "moment": clock.moment(),
        "id": schedule.pk,
        "error": without_bad_characters(text)[:MAX_ERROR],
        "pause": RETRY_HELD_UP if was_held_up else RETRY_BROKEN,
        "was_held_up": was_held_up,
    }
    with engine_cursor(using) as cursor:
        cursor.execute(SET_BROKEN, parameters)
