"""What tick, edits and backfill write about a schedule's slots. Callers hold the lock of the schedule's row.

The primary key of a slot is the guarantee that it makes one job at most; the lock only saves the work of finding out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections

from django_reliable_jobs import arguments, clock, registry
from django_reliable_jobs.engine import enqueue
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.registry import Placement, Task
from django_reliable_jobs.slots import Dropped, Timeline, drop_all, jitter_of

PLANNED = 3  # next runs kept with a decision, to tell later whether an upgrade moved them

NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"
_NEXT_ID = "nextval(pg_get_serial_sequence('django_reliable_jobs_job', 'id'))"

_RANGES = f"""ranges AS (
    INSERT INTO django_reliable_jobs_slotrange (schedule_id, first, last, count, outcome, reason, decided_at)
    SELECT %(id)s, given.first, given.last, given.count, given.outcome, given.reason, {NOW}
      FROM unnest(%(firsts)s::timestamptz[], %(lasts)s::timestamptz[], %(counts)s::int[], %(range_outcomes)s::text[],
                  %(range_reasons)s::text[]) AS given(first, last, count, outcome, reason)
)"""
_DECIDED = f"""decided AS (
    INSERT INTO django_reliable_jobs_slot AS slot (schedule_id, slot, outcome, reason, job_id, decided_at)
    SELECT %(id)s, given.slot, given.outcome, given.reason, CASE WHEN given.outcome = 'job' THEN {_NEXT_ID} END, {NOW}
      FROM unnest(%(slots)s::timestamptz[], %(outcomes)s::text[], %(reasons)s::text[]) AS given(slot, outcome, reason)
     ORDER BY given.slot
        ON CONFLICT (schedule_id, slot) DO NOTHING
    RETURNING slot.slot, slot.job_id
)"""

RECORD_DROPPED = f"WITH {_DECIDED}, {_RANGES} SELECT count(*) FROM decided"

# One statement: the slots, the ranges, and the cursor of the schedule. What has a row is done: the ids of the jobs to
# be made come back for the slots that this statement inserted, and no others.
RECORD = f"""
WITH {_DECIDED}, {_RANGES}, moved AS (
    UPDATE django_reliable_jobs_schedule
       SET decided_until = greatest(decided_until, %(decided_until)s), next_run_at = %(next_run_at)s,
           planned = %(planned)s::jsonb, error = '', error_at = NULL, retry_at = NULL,
           paused_at = NULL, resume_at = NULL, pause_reason = ''
     WHERE id = %(id)s
)
SELECT slot, job_id FROM decided WHERE job_id IS NOT NULL ORDER BY slot
"""

MARK_DUPLICATE = """
UPDATE django_reliable_jobs_slot SET outcome = 'skipped', reason = 'duplicate', job_id = NULL
 WHERE schedule_id = %(schedule_id)s AND slot = %(slot)s
"""

LIVE = """
SELECT schedule_id, id, first_started_at IS NOT NULL FROM django_reliable_jobs_job
 WHERE schedule_id = ANY(%(ids)s::bigint[]) AND status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING')
 ORDER BY id
"""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is written of one decision."""

    timeline: Timeline
    decided_until: datetime
    jobs: Sequence[datetime] = ()
    dropped: Sequence[Dropped] = ()


def timeline_of(schedule: Schedule) -> Timeline:
    """Return the slots of a row. Raises InvalidRecurrence if its rule can't hold on this machine."""
    return Timeline(schedule.rule(), schedule.starts_at, schedule.ends_at)


def now(using: str) -> datetime:
    """Return the moment that is now for schedules; call it after the lock was taken."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT {NOW}", {"moment": clock.moment()})
        moment: datetime = cursor.fetchone()[0]
        return moment


def undecided(schedule: Schedule, until: datetime, reason: str) -> list[Dropped]:
    """Return what is recorded of the slots up to `until` that will get no job, by the rule in the row."""
    try:
        return drop_all(timeline_of(schedule), schedule.decided_until, until, reason)
    except Exception:  # a rule that can't be read any more: which slots there were is not known
        if until <= schedule.decided_until:
            return []
        return [Dropped(schedule.decided_until + timedelta(microseconds=1), until, None, "skipped", reason)]


def record(using: str, schedule: Schedule, record: Record) -> list[tuple[datetime, int]]:
    """Write a decision, and the end of a pause; return the slots that are to get a job now, with its id."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            RECORD,
            {
                **_decided(schedule, record.jobs, record.dropped),
                "decided_until": record.decided_until,
                **plan(record.timeline, record.decided_until, None, is_paused=False),
            },
        )
        return list(cursor.fetchall())


def record_dropped(using: str, schedule: Schedule, dropped: Sequence[Dropped]) -> None:
    """Write slots that get no job; the cursor is left to the caller."""
    if dropped:
        with connections[using].cursor() as cursor:
            cursor.execute(RECORD_DROPPED, _decided(schedule, (), dropped))


def _decided(schedule: Schedule, jobs: Sequence[datetime], dropped: Sequence[Dropped]) -> dict[str, Any]:
    singles = [each for each in dropped if each.count == 1]
    ranges = [each for each in dropped if each.count != 1]
    return {
        "moment": clock.moment(),
        "id": schedule.pk,
        "slots": [*jobs, *(each.first for each in singles)],
        "outcomes": ["job"] * len(jobs) + [each.outcome for each in singles],
        "reasons": [""] * len(jobs) + [each.reason for each in singles],
        "firsts": [each.first for each in ranges],
        "lasts": [each.last for each in ranges],
        "counts": [each.count for each in ranges],
        "range_outcomes": [each.outcome for each in ranges],
        "range_reasons": [each.reason for each in ranges],
    }


def plan(timeline: Timeline, decided_until: datetime, resume_at: datetime | None, *, is_paused: bool) -> dict[str, Any]:
    """Return the columns that say when the schedule runs next."""
    if is_paused and resume_at is None:
        return {"next_run_at": None, "planned": "[]"}
    after = max(decided_until, resume_at) if is_paused and resume_at else decided_until
    runs = timeline.first_few(after, PLANNED)
    return {
        "next_run_at": runs[0] if runs else None,
        "planned": arguments.dump([run.isoformat() for run in runs]),
    }


def task_of(schedule: Schedule) -> Task[..., Any]:
    """Return the declared task. Raises UnknownTask."""
    return registry.get(schedule.task)


def make_jobs(
    using: str,
    schedule: Schedule,
    task: Task[..., Any],
    slots: Iterable[tuple[datetime, int]],
    *,
    is_due_now: bool = False,
) -> list[int]:
    """Insert the jobs of slots that `record` returned; return the ids of those made. Raises InvalidArguments.

    `is_due_now`: for slots of long ago that a person asked for; they have no jitter and no deadline.
    """
    made = []
    placement = Placement(task=task, database=using).using(
        queue_name=schedule.queue_name or None, priority=schedule.priority
    )
    for slot, job_id in slots:
        due = None if is_due_now else slot + jitter_of(schedule.pk, slot, schedule.jitter)
        deadline = None if is_due_now else schedule.start_deadline
        is_made = enqueue.enqueue_scheduled(
            placement.using(run_after=due),
            schedule.kwargs,
            job_id=job_id,
            schedule_id=schedule.pk,
            slot=slot,
            start_before=slot + deadline if deadline else None,
            serial_key=schedule.serial_key,
        )
        if is_made:
            made.append(job_id)
            continue
        with connections[using].cursor() as cursor:
            cursor.execute(MARK_DUPLICATE, {"schedule_id": schedule.pk, "slot": slot})
    return made


def live_jobs(using: str, schedule_ids: Sequence[int]) -> dict[int, list[tuple[int, bool]]]:
    """Return the jobs of schedules that have not ended: per schedule, their ids and whether each has begun."""
    live: dict[int, list[tuple[int, bool]]] = {}
    with connections[using].cursor() as cursor:
        cursor.execute(LIVE, {"ids": list(schedule_ids)})
        for schedule_id, job_id, has_begun in cursor.fetchall():
            live.setdefault(schedule_id, []).append((job_id, has_begun))
    return live
