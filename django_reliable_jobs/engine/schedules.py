"""What people decide about schedules: create, change, pause, resume, run now, delete.

A change of when a schedule runs (its recurrence, rules, start and end), a pause and its end never fire anything past:
the slots up to that moment that were not decided yet are recorded with the reason, and the schedule goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from django_reliable_jobs import arguments, registry
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import insert, scheduled_jobs, slots
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.engine.wakeup import notify_schedulers
from django_reliable_jobs.exceptions import DuplicateJob, InvalidSchedule, UnknownSchedule, UnknownTask
from django_reliable_jobs.models import Job, Leader, Schedule
from django_reliable_jobs.schedule_options import (
    FIELDS,
    TIMING,
    ScheduleOptions,
    as_json,
    checked_name,
    from_json,
)
from django_reliable_jobs.slots import Timeline

OFFICE = "scheduler"  # of the leader who decides slots

DELETE = """
WITH slots AS (
    DELETE FROM django_reliable_jobs_slot WHERE schedule_id = ANY(%(ids)s::bigint[])
), pinged AS (
    DELETE FROM django_reliable_jobs_pinged WHERE schedule_id = ANY(%(ids)s::bigint[])
), ranges AS (
    DELETE FROM django_reliable_jobs_slotrange WHERE schedule_id = ANY(%(ids)s::bigint[])
)
DELETE FROM django_reliable_jobs_schedule WHERE id = ANY(%(ids)s::bigint[])
"""


# Jobs from before overlap was forbidden take their turn too: what runs, and what is made from now on, must not meet.
JOIN_THE_LINE = """
UPDATE django_reliable_jobs_job SET serial_key = %(key)s WHERE id IN (
    SELECT id FROM django_reliable_jobs_job
     WHERE schedule_id = %(id)s AND status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING') AND serial_key IS NULL
     ORDER BY id FOR NO KEY UPDATE)
"""


def find(using: str, name: str) -> Schedule:
    """Return the schedule of this name. Raises UnknownSchedule, which suggests the nearest."""
    schedule = Schedule.objects.using(using).filter(name=name).first()
    if schedule is None:
        close = get_close_matches(name, Schedule.objects.using(using).values_list("name", flat=True), n=1)
        raise UnknownSchedule(f"there is no schedule {name!r}" + (f": did you mean {close[0]!r}?" if close else ""))
    return schedule


def find_broken(using: str) -> list[Schedule]:
    """Return the schedules that can't be decided, by name."""
    return list(Schedule.objects.using(using).exclude(error="").order_by("name"))


def find_overdue_without_leader(using: str) -> Schedule | None:
    """Return the schedule that is due longest, if nobody leads who would decide it."""
    moment = slots.now(using)
    if Leader.objects.using(using).filter(name=OFFICE, expires_at__gt=Now()).exists():
        return None
    due = Schedule.objects.using(using).filter(next_run_at__lte=moment, error="")
    return due.order_by("next_run_at").first()


def check(task: str, options: ScheduleOptions) -> None:
    """Raise InvalidSchedule unless the task is declared and takes the arguments."""
    try:
        declared = registry.get(task)
    except UnknownTask as error:
        raise InvalidSchedule("task", str(error)) from None
    options.check_task(declared, max_bytes=settings.MAX_ARGUMENT_BYTES)


def create(using: str, *, name: str, task: str, options: ScheduleOptions, is_declared: bool = False) -> Schedule:
    """Insert a schedule; its first slot is the first after now. Raises InvalidSchedule, also if the name is taken."""
    checked_name(name)
    check(task, options)
    columns = {"task": task, **options.as_columns()}
    moment = slots.now(using)
    timeline = Timeline(options.recurrence, options.starts_at, options.ends_at)
    planned = slots.plan(timeline, moment, None, is_paused=False)
    try:
        with short_transaction(using):
            schedule = Schedule.objects.using(using).create(
                name=name,
                **columns,
                managed_by=Schedule.ManagedBy.CODE if is_declared else Schedule.ManagedBy.ADMIN,
                declared=as_json(columns) if is_declared else None,
                decided_until=moment,
                watched_since=moment,
                next_run_at=planned["next_run_at"],
                planned=arguments.load(planned["planned"]),
            )
            notify_schedulers(using)
    except IntegrityError as error:
        if Schedule.objects.using(using).filter(name=name).exists():
            raise InvalidSchedule("name", f"there is a schedule {name!r} already") from error
        raise
    return schedule


def edit(using: str, schedule_id: int, **changes: Any) -> Schedule:
    """Change fields of a schedule (those of ScheduleOptions, `name` and `task`); what is not named stays.

    A change of when it runs recomputes from now. Raises InvalidSchedule, and then nothing is changed.
    """
    with _locked(using, [schedule_id]) as [schedule]:
        _change(using, schedule, changes)
    return schedule


def reset_to_code(using: str, schedule_id: int) -> Schedule:
    """Give a schedule that the code declares the code's values again, whatever an operator changed."""
    with _locked(using, [schedule_id]) as [schedule]:
        if schedule.declared is None:
            raise InvalidSchedule("managed_by", f"the schedule {schedule.name!r} is not declared in code")
        _change(using, schedule, from_json(schedule.declared))
    return schedule


def pause(using: str, schedule_ids: Sequence[int], *, resume_at: datetime | None = None, reason: str = "") -> list[int]:
    """Make no more jobs of these schedules, until `resume_at` or until resumed; return the ids of those that exist.

    Jobs that were made before run on. The last word on `resume_at` counts.
    """
    with _locked(using, schedule_ids, may_miss=True) as found:
        for schedule in found:
            moment = slots.now(using)
            _end_pause(using, schedule, moment)
            _record_undecided(using, schedule, moment, "paused")
            paused_at = schedule.paused_at or moment
            _update(using, schedule, paused_at=paused_at, resume_at=resume_at, pause_reason=reason)
    return [schedule.pk for schedule in found]


def resume(using: str, schedule_ids: Sequence[int]) -> list[int]:
    """Let paused schedules go on from now; nothing past fires. Return the ids of those that were paused."""
    with _locked(using, schedule_ids, may_miss=True) as found:
        paused = [schedule for schedule in found if schedule.paused_at is not None]
        for schedule in paused:
            moment = slots.now(using)
            if not _end_pause(using, schedule, moment):
                _record_undecided(using, schedule, moment, "paused")
                schedule.watched_since = moment
            _update(using, schedule, paused_at=None, resume_at=None, pause_reason="")
    return [schedule.pk for schedule in paused]


def run_now(using: str, schedule_id: int) -> Job:
    """Make a job of the schedule that serves no slot, also if it is paused. It waits its turn unless overlap is
    allowed.

    Raises UnknownTask, InvalidArguments, and DuplicateJob if a live job holds the task's unique key.
    """
    with _locked(using, [schedule_id]) as [schedule]:
        template = slots.template_of(using, schedule)
        [job_id] = insert.take_ids(using, 1)
        if not scheduled_jobs.insert(using, [{**template, "id": job_id}]):
            raise DuplicateJob(None, f"a live job of {schedule.task} holds the unique key of these arguments")
        return Job.objects.using(using).get(pk=job_id)


def delete(using: str, schedule_ids: Sequence[int]) -> None:
    """Delete schedules with the record of their slots; their jobs stay."""
    # In a statement after the locks, that sees the slots which a tick had in hand.
    with _locked(using, schedule_ids, may_miss=True), engine_cursor(using) as cursor:
        cursor.execute(DELETE, {"ids": sorted(schedule_ids)})


@contextmanager
def _locked(using: str, schedule_ids: Iterable[int], *, may_miss: bool = False) -> Iterator[list[Schedule]]:
    """Lock and read rows, in the order of ids, for the block; wake the schedulers when it is committed."""
    wanted = sorted(set(schedule_ids))
    with short_transaction(using):
        rows = Schedule.objects.using(using).select_for_update(no_key=True).filter(pk__in=wanted)
        found = list(rows.order_by("pk"))
        if len(found) < len(wanted) and not may_miss:
            raise UnknownSchedule(f"there is no schedule with the id {wanted[0]}")
        yield found
        notify_schedulers(using)


def _change(using: str, schedule: Schedule, changes: Mapping[str, Any]) -> None:
    unknown = set(changes) - {"name", "task", *FIELDS}
    if unknown:
        raise TypeError(f"a schedule has no field {', '.join(sorted(unknown))}")
    name, task = changes.get("name", schedule.name), changes.get("task", schedule.task)
    checked_name(name)
    before = {each: getattr(schedule, each) for each in ("task", *FIELDS)}
    options = ScheduleOptions.from_columns({**before, **changes})
    check(task, options)
    columns = {"task": task, **options.as_columns()}
    old, new = as_json(before), as_json(columns)
    moment = slots.now(using)
    _end_pause(using, schedule, moment)
    if any(old[each] != new[each] for each in TIMING):
        _record_undecided(using, schedule, moment, "edited" if schedule.paused_at is None else "paused")
    try:
        with transaction.atomic(using=using):
            _update(using, schedule, name=name, **columns)
    except IntegrityError as error:
        raise InvalidSchedule("name", f"there is a schedule {name!r} already") from error
    if before["overlap"] == Schedule.Overlap.ALLOW and schedule.serial_key is not None:
        with engine_cursor(using) as cursor:
            cursor.execute(JOIN_THE_LINE, {"id": schedule.pk, "key": schedule.serial_key})


def _end_pause(using: str, schedule: Schedule, moment: datetime) -> bool:
    """Clear a pause whose end has come; what was due after that end was not paused and stays to be decided."""
    if schedule.resume_at is None or schedule.resume_at > moment:
        return False
    _record_undecided(using, schedule, schedule.resume_at, "paused")
    schedule.watched_since = schedule.resume_at
    schedule.paused_at = schedule.resume_at = None
    schedule.pause_reason = ""
    return True


def _record_undecided(using: str, schedule: Schedule, until: datetime, reason: str) -> None:
    """Record that the slots up to `until` get no job, by the rule that is in the row, and go on from there."""
    until = max(until, schedule.decided_until)
    slots.record_dropped(using, schedule, slots.undecided(schedule, until, reason))
    schedule.decided_until = until


def _update(using: str, schedule: Schedule, **columns: Any) -> None:
    """Write columns, and what follows from them: the next run by the rule that is now in the row."""
    for name, value in columns.items():
        setattr(schedule, name, value)
    try:
        planned = slots.plan(
            slots.timeline_of(schedule),
            schedule.decided_until,
            schedule.resume_at,
            is_paused=schedule.paused_at is not None,
        )
        schedule.next_run_at, schedule.planned = planned["next_run_at"], arguments.load(planned["planned"])
        schedule.error, schedule.error_at, schedule.retry_at = "", None, None
    except Exception:  # the rule can't be read, and was not changed: the next tick says why
        is_paused = schedule.paused_at is not None and schedule.resume_at is None
        after = max(schedule.decided_until, schedule.resume_at or schedule.decided_until)
        schedule.next_run_at = None if is_paused else after + timedelta(microseconds=1)
    schedule.changed_at = slots.now(using)
    schedule.save(using=using)
