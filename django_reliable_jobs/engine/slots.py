"""What tick, edits and backfill write about a schedule's slots. Callers hold the lock of the schedule's row.

The primary key of a slot is the guarantee that it makes one job at most; the lock only saves the work of finding out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from typing import Any

from django_reliable_jobs import arguments, clock, registry
from django_reliable_jobs.engine import enqueue, scheduled_jobs
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.registry import Placement
from django_reliable_jobs.slots import Dropped, Timeline, drop_all, jitter_of

PLANNED = 3  # next runs kept with a decision, to tell later whether an upgrade moved them

NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"
_NEXT_ID = "nextval(pg_get_serial_sequence('django_reliable_jobs_job', 'id'))"

# Slots and ranges of any schedules. What has a row is done: the ids of the jobs to be made come back for the slots that
# this statement inserted, and no others.
_DECIDED = f"""decided AS (
    INSERT INTO django_reliable_jobs_slot AS slot (schedule_id, slot, outcome, reason, job_id, decided_at)
    SELECT given.id, given.slot, given.outcome, given.reason, CASE WHEN given.outcome = 'job' THEN {_NEXT_ID} END, {NOW}
      FROM unnest(%(slot_ids)s::bigint[], %(slots)s::timestamptz[], %(outcomes)s::text[], %(reasons)s::text[])
           AS given(id, slot, outcome, reason)
     ORDER BY given.id, given.slot
        ON CONFLICT (schedule_id, slot) DO NOTHING
    RETURNING slot.schedule_id, slot.slot, slot.job_id
), ranges AS (
    INSERT INTO django_reliable_jobs_slotrange (schedule_id, first, last, count, outcome, reason, decided_at)
    SELECT given.id, given.first, given.last, given.count, given.outcome, given.reason, {NOW}
      FROM unnest(%(range_ids)s::bigint[], %(firsts)s::timestamptz[], %(lasts)s::timestamptz[], %(counts)s::int[],
                  %(range_outcomes)s::text[], %(range_reasons)s::text[])
           AS given(id, first, last, count, outcome, reason)
)"""
RECORD_DROPPED = f"WITH {_DECIDED} SELECT count(*) FROM decided"

# With the cursors of the schedules, and the ends of their pauses.
RECORD = f"""
WITH {_DECIDED}, moved AS (
    UPDATE django_reliable_jobs_schedule schedule
       SET decided_until = greatest(schedule.decided_until, given.decided_until), next_run_at = given.next_run_at,
           planned = given.planned::jsonb, error = '', error_at = NULL, retry_at = NULL,
           watched_since = coalesce(schedule.resume_at, schedule.watched_since),
           paused_at = NULL, resume_at = NULL, pause_reason = ''
      FROM unnest(%(ids)s::bigint[], %(decided_until)s::timestamptz[], %(next_run_at)s::timestamptz[],
                  %(planned)s::text[]) AS given(id, decided_until, next_run_at, planned)
     WHERE schedule.id = given.id
)
SELECT schedule_id, slot, job_id FROM decided WHERE job_id IS NOT NULL ORDER BY schedule_id, slot
"""

MARK_DUPLICATES = """
UPDATE django_reliable_jobs_slot slot SET outcome = 'skipped', reason = 'duplicate', job_id = NULL
  FROM unnest(%(schedule_ids)s::bigint[], %(slots)s::timestamptz[]) AS given(schedule_id, slot)
 WHERE slot.schedule_id = given.schedule_id AND slot.slot = given.slot
"""

# Who can be cancelled at once is locked, so that no worker takes it before it is.
KEY_HELD = """
WITH holder AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job
     WHERE unique_hash = %(unique_hash)s AND status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING')
), yielding AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job
     WHERE id IN (SELECT id FROM holder) AND id = ANY(%(ids)s::bigint[]) AND status IN ('SCHEDULED', 'READY', 'WAITING')
       FOR NO KEY UPDATE SKIP LOCKED
)
SELECT EXISTS (SELECT 1 FROM holder WHERE id NOT IN (SELECT id FROM yielding))
"""

LIVE = """
SELECT schedule_id, id, first_started_at IS NOT NULL FROM django_reliable_jobs_job
 WHERE schedule_id = ANY(%(ids)s::bigint[]) AND status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING')
 ORDER BY id
"""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is written of one decision. `template` is what its jobs share, from `template_of`."""

    schedule: Schedule
    timeline: Timeline
    decided_until: datetime
    template: Mapping[str, Any]
    jobs: Sequence[datetime] = ()
    dropped: Sequence[Dropped] = ()
    replaced: Sequence[int] = ()  # live jobs to be cancelled if a job is made


@dataclass(frozen=True)
class Made:
    """A slot that this statement gave a job, and the id of the job."""

    schedule_id: int
    slot: datetime
    job_id: int


def timeline_of(schedule: Schedule) -> Timeline:
    """Return the slots of a row. Raises InvalidRecurrence if its rule can't hold on this machine."""
    return Timeline(schedule.rule(), schedule.starts_at, schedule.ends_at)


def now(using: str) -> datetime:
    """Return the moment that is now for schedules; call it after the lock was taken."""
    with engine_cursor(using) as cursor:
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


def record(using: str, records: Sequence[Record]) -> list[Made]:
    """Write decisions; return the slots that are to get a job now, with its id."""
    plans = [plan(each.timeline, each.decided_until, None, is_paused=False) for each in records]
    with engine_cursor(using) as cursor:
        cursor.execute(
            RECORD,
            {
                **_decided([(each.schedule.pk, each.jobs, each.dropped) for each in records]),
                "ids": [each.schedule.pk for each in records],
                "decided_until": [each.decided_until for each in records],
                "next_run_at": [each["next_run_at"] for each in plans],
                "planned": [each["planned"] for each in plans],
            },
        )
        return [Made(*row) for row in cursor.fetchall()]


def record_dropped(using: str, schedule: Schedule, dropped: Sequence[Dropped]) -> None:
    """Write slots that get no job; the cursor is left to the caller."""
    if dropped:
        with engine_cursor(using) as cursor:
            cursor.execute(RECORD_DROPPED, _decided([(schedule.pk, (), dropped)]))


def _decided(decisions: Sequence[tuple[int, Sequence[datetime], Sequence[Dropped]]]) -> dict[str, Any]:
    jobs = [(pk, slot, "job", "") for pk, slots, _ in decisions for slot in slots]
    dropped = [(pk, each) for pk, _, all_dropped in decisions for each in all_dropped]
    slots = [*jobs, *((pk, each.first, each.outcome, each.reason) for pk, each in dropped if each.count == 1)]
    ranges = [(pk, *astuple(each)) for pk, each in dropped if each.count != 1]
    names = ("slot_ids", "slots", "outcomes", "reasons")
    range_names = ("range_ids", "firsts", "lasts", "counts", "range_outcomes", "range_reasons")
    return {
        "moment": clock.moment(),
        **{name: [row[place] for row in slots] for place, name in enumerate(names)},
        **{name: [row[place] for row in ranges] for place, name in enumerate(range_names)},
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


def template_of(using: str, schedule: Schedule) -> dict[str, Any]:
    """Return what all jobs of a schedule share. Raises UnknownTask and InvalidArguments."""
    placement = Placement(task=registry.get(schedule.task), database=using).using(
        queue_name=schedule.queue_name or None, priority=schedule.priority
    )
    return {
        **enqueue.check_scheduled(placement, schedule.kwargs),
        "schedule_id": schedule.pk,
        "slot": None,
        "start_before": None,
        "serial_key": schedule.serial_key,
    }


def job_of_slot(schedule: Schedule, template: Mapping[str, Any], made: Made) -> dict[str, Any]:
    """Return the job of a slot that is on time or caught up, with its jitter and its deadline."""
    deadline = schedule.start_deadline
    return {
        **template,
        "id": made.job_id,
        "slot": made.slot,
        "run_after": made.slot + jitter_of(schedule.pk, made.slot, schedule.jitter),
        "start_before": made.slot + deadline if deadline else None,
    }


def insert_jobs(using: str, jobs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Insert the jobs of slots; return their ids. A slot whose unique key a live job holds is marked so."""
    made = scheduled_jobs.insert(using, jobs)
    duplicates = [job for job in jobs if job["id"] not in made]
    if duplicates:
        keys = {
            "schedule_ids": [job["schedule_id"] for job in duplicates],
            "slots": [job["slot"] for job in duplicates],
        }
        with engine_cursor(using) as cursor:
            cursor.execute(MARK_DUPLICATES, keys)
    return sorted(made)


def is_key_held(using: str, unique_hash: bytes, job_ids: Sequence[int]) -> bool:
    """Return whether a unique key will still be held when what is at rest of these jobs has been cancelled."""
    with engine_cursor(using) as cursor:
        cursor.execute(KEY_HELD, {"unique_hash": unique_hash, "ids": list(job_ids)})
        return bool(cursor.fetchone()[0])


def live_jobs(using: str, schedule_ids: Sequence[int]) -> dict[int, list[tuple[int, bool]]]:
    """Return the jobs of schedules that have not ended: per schedule, their ids and whether each has begun."""
    live: dict[int, list[tuple[int, bool]]] = {}
    with engine_cursor(using) as cursor:
        cursor.execute(LIVE, {"ids": list(schedule_ids)})
        for schedule_id, job_id, has_begun in cursor.fetchall():
            live.setdefault(schedule_id, []).append((job_id, has_begun))
    return live
