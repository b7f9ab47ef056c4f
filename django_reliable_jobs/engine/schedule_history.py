"""What became of a schedule's runs, read for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Schedule, Slot, SlotRange

# Each arm is one descent of the index of a schedule's jobs, however many there are.
LAST_JOBS = """
SELECT DISTINCT ON (last.schedule_id)
       last.schedule_id, last.id, last.status, last.slot, last.started_at, last.finished_at, last.reason
  FROM unnest(%(ids)s::bigint[]) AS given(id)
 CROSS JOIN unnest(ARRAY['SCHEDULED', 'READY', 'RUNNING', 'WAITING', 'SUCCEEDED', 'DEAD', 'CANCELLED']) AS state(status)
 CROSS JOIN LATERAL (
       SELECT job.schedule_id, job.id, job.status, job.slot, job.started_at, job.finished_at, job.reason
         FROM django_reliable_jobs_job job
        WHERE job.schedule_id = given.id AND job.status = state.status
        ORDER BY job.finished_at DESC LIMIT 1) last
 ORDER BY last.schedule_id, last.id DESC
"""


class LastJob(NamedTuple):
    """The newest job of a schedule; `slot` is None if a person asked for it."""

    schedule_id: int
    id: int
    status: str
    slot: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a slot, or of `count` slots in a row (None: of many); `job_id` is None if they got none."""

    first: datetime
    last: datetime
    count: int | None
    reason: str  # in words; empty if there is a job
    job_id: int | None


def name_of(using: str, schedule_id: int) -> str:
    """Return the name of a schedule, or what is left of it."""
    name: str | None = Schedule.objects.using(using).filter(pk=schedule_id).values_list("name", flat=True).first()
    return f"{schedule_id}, deleted since" if name is None else name


def last_jobs(using: str, schedule_ids: Iterable[int]) -> dict[int, LastJob]:
    """Return the newest job of each schedule that has one."""
    with engine_cursor(using) as cursor:
        cursor.execute(LAST_JOBS, {"ids": list(schedule_ids)})
        return {row[0]: LastJob(*row) for row in cursor.fetchall()}


def last_decided(using: str, schedule_id: int, *, limit: int) -> list[Decided]:
    """Return the last slots of a schedule, newest first, and why those without a job have none."""
    slots = Slot.objects.using(using).filter(schedule_id=schedule_id).order_by("-slot")[:limit]
    ranges = SlotRange.objects.using(using).filter(schedule_id=schedule_id).order_by("-last")[:limit]
    rows = [
        *(Decided(each.slot, each.slot, 1, str(each.get_reason_display()), each.job_id) for each in slots),
        *(Decided(each.first, each.last, each.count, str(each.get_reason_display()), None) for each in ranges),
    ]
    return sorted(rows, key=lambda row: row.last, reverse=True)[:limit]
