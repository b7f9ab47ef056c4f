"""The runs of a schedule, slot by slot: how long they took, how they ended, why some did not run. Writes nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Job, Slot

# Two descents and a look-up by id for each slot, whatever number of slots there are.
RUNS = """
SELECT slot.slot, slot.slot, 1, slot.outcome, slot.reason, slot.job_id, job.status, job.started_at, job.finished_at,
       job.reason
  FROM (SELECT * FROM django_reliable_jobs_slot
         WHERE schedule_id = %(schedule)s ORDER BY slot DESC LIMIT %(limit)s) slot
  LEFT JOIN django_reliable_jobs_job job ON job.id = slot.job_id
 UNION ALL
SELECT span.first, span.last, span.count, span.outcome, span.reason, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT * FROM django_reliable_jobs_slotrange
         WHERE schedule_id = %(schedule)s ORDER BY last DESC LIMIT %(limit)s) span
 ORDER BY 2 DESC LIMIT %(limit)s
"""


class Run(NamedTuple):
    """A slot, or `slots` of them in a row (None: many), and what became of it. `status` is None if its job is gone."""

    first: datetime
    last: datetime
    slots: int | None
    outcome: str  # of Slot.Outcome
    reason: str  # of Slot.Reason
    job_id: int | None
    status: str | None
    started_at: datetime | None
    finished_at: datetime | None
    said: str | None

    @property
    def took(self) -> timedelta | None:
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at

    @property
    def why(self) -> str:
        """Why there is no job, in words."""
        return str(Slot.Reason(self.reason).label) if self.reason else ""


@dataclass(frozen=True)
class Summary:
    """Of the runs that have ended and are kept, how many succeeded, and how long those took."""

    ended: int
    succeeded: int
    without_job: int
    median: timedelta | None
    ninety_fifth: timedelta | None
    longest: timedelta | None


def runs(using: str, schedule_id: int, *, limit: int) -> list[Run]:
    """Return the last slots of a schedule, newest first."""
    with engine_cursor(using) as cursor:
        cursor.execute(RUNS, {"schedule": schedule_id, "limit": limit})
        return [Run(*row) for row in cursor.fetchall()]


def summary(found: Sequence[Run]) -> Summary:
    """Return what these runs are like together."""
    ended = [run for run in found if run.status in Job.ENDED]
    took = sorted(run.took for run in ended if run.took is not None and run.status == Job.Status.SUCCEEDED)
    return Summary(
        ended=len(ended),
        succeeded=sum(run.status == Job.Status.SUCCEEDED for run in ended),
        without_job=sum(run.slots or 1 for run in found if run.outcome != Slot.Outcome.JOB),
        median=_percentile(took, 50),
        ninety_fifth=_percentile(took, 95),
        longest=took[-1] if took else None,
    )


def _percentile(ordered: Sequence[timedelta], percent: int) -> timedelta | None:
    """Return the smallest value that so many percent do not exceed."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)] if ordered else None
