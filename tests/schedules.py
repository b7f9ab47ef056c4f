"""Schedules as the tests make them, and what became of their slots in short."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django_reliable_jobs.engine import schedules
from django_reliable_jobs.models import Job, Schedule, Slot, SlotRange
from django_reliable_jobs.recurrence import Cron, Recurrence
from django_reliable_jobs.schedule_options import ScheduleOptions
from django_reliable_jobs.testing import at

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
HOURLY = Cron("0 * * * *")


def on(day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    """A moment in March 2026; the 2nd is a Monday."""
    return datetime(2026, 3, day, hour, minute, second, tzinfo=UTC)


def a_schedule(
    recurrence: Recurrence = HOURLY,
    *,
    name: str = "hourly",
    task: str = "tests.tasks.nothing",
    since: datetime = MONDAY,
    **options: Any,
) -> Schedule:
    """A schedule made at `since` (on a Monday at midnight, unless told otherwise)."""
    with at(since):
        return schedules.create(
            "default", name=name, task=task, options=ScheduleOptions(recurrence=recurrence, **options)
        )


def slots_of(schedule: Schedule) -> dict[datetime, str]:
    """What became of each slot that has a row: "job", or the reason why it has none."""
    rows = Slot.objects.filter(schedule_id=schedule.pk).order_by("slot")
    return {row.slot: row.reason or row.outcome for row in rows}


def ranges_of(schedule: Schedule) -> list[tuple[datetime, datetime, int | None, str]]:
    """First, last, number and reason of the ranges, in the order of time."""
    rows = SlotRange.objects.filter(schedule_id=schedule.pk).order_by("first")
    return [(row.first, row.last, row.count, row.reason) for row in rows]


def jobs_of(schedule: Schedule) -> dict[datetime | None, str]:
    """The status of the schedule's jobs, by slot."""
    rows = Job.objects.filter(schedule_id=schedule.pk).order_by("id")
    return {row.slot: row.status for row in rows}
