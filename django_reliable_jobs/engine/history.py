"""The run of a job as a list of steps, and its runs told apart, for people. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, QuerySet

from django_reliable_jobs import clock
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Attempt, Batch, Checkpoint, Job

_NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"


# Of the attempts that have a row, these were not used up: the next one has the same number.
GIVEN_BACK = (Attempt.Outcome.SNOOZED, Attempt.Outcome.INTERRUPTED, Attempt.Outcome.LOST)


@dataclass(frozen=True)
class StepStatus:
    """One step, sleep or wait of a run. `took` is from its begin to its end, whatever lay between its tries."""

    name: str
    kind: str
    state: str  # done | trying (it failed, and is tried again) | waiting | failed
    tries: int | None
    since: datetime
    took: timedelta | None  # None: it is not over
    until: datetime | None
    result: Any
    error: str | None
    undo: str | None = None  # None: there is nothing to undo | to do | trying | done | failed
    undo_tries: int | None = None
    undo_error: str | None = None


def steps_of(using: str, job: Job, *, run: int | None = None) -> list[StepStatus]:
    """Return the steps of a run, the current one if none is named, in their order."""
    rows = find_steps(Checkpoint.objects.using(using), job.pk, job.run if run is None else run)
    with engine_cursor(using) as cursor:
        cursor.execute(f"SELECT {_NOW}", {"moment": clock.moment()})
        now = cursor.fetchone()[0]
    return [status_of(row, now) for row in rows]


def find_steps(checkpoints: QuerySet[Checkpoint], job_id: int, run: int) -> QuerySet[Checkpoint]:
    """Narrow to the steps of a run, in their order."""
    return checkpoints.filter(job_id=job_id, run=run).exclude(kind=Checkpoint.Kind.CHECKPOINT).order_by("pk")


def status_of(row: Checkpoint, now: datetime) -> StepStatus:
    """Return a row of the history as it is now."""
    state, ended = row.state, row.saved_at
    if row.kind == Checkpoint.Kind.SLEEP and row.until is not None and row.until <= now:
        state, ended = Checkpoint.State.DONE.value, row.until
    since = row.started_at or row.saved_at
    is_over = state in (Checkpoint.State.DONE, Checkpoint.State.FAILED)
    return StepStatus(
        name=row.name,
        kind=row.kind,
        state=str(state),
        tries=row.tries,
        since=since,
        took=ended - since if is_over else None,
        until=row.until,
        result=row.value,
        error=row.error,
        undo=row.undo_state or ("to do" if _may_be_undone(row) else None),
        undo_tries=row.undo_tries,
        undo_error=row.undo_error,
    )


def _may_be_undone(row: Checkpoint) -> bool:
    """Return what `undoing.MAY_BE_UNDONE` says of a step that nobody has begun to undo."""
    is_in_doubt = row.state == Checkpoint.State.TRYING and not row.is_atomic
    return row.undo is not None and (row.state == Checkpoint.State.DONE or is_in_doubt)


def retried_after(job: Job, attempts: Sequence[Attempt]) -> dict[int, bool]:
    """Return after which attempts, by claim, a person had the job tried again, and whether from the start.

    Given the newest first. Their numbers tell it: since then they are counted anew.
    """
    found: dict[int, bool] = {}
    if not attempts:
        return found
    run, number = _after(job, attempts[0])
    for each in attempts:
        is_used_up = each.outcome not in GIVEN_BACK
        if run != each.run or number < each.number or (number == each.number and is_used_up):
            found[each.claim] = run != each.run
        run, number = each.run, each.number
    return found


def _after(job: Job, newest: Attempt) -> tuple[int, int]:
    """Return the run and the number of the attempt that follows the newest which has a row."""
    if newest.claim > job.claims:  # it was written after the job was read
        return newest.run, newest.number + 1
    is_at_it = job.status in (Job.Status.RUNNING, Job.Status.SUCCEEDED) and job.claims > newest.claim
    return job.run, job.attempt + (0 if is_at_it else 1)


def children_of(using: str, job_id: int) -> dict[str, int]:
    """Return how many jobs that this one started have each status."""
    batches = Batch.objects.using(using).filter(parent_id=job_id).values("pk")
    jobs = Job.objects.using(using).filter(batch_id__in=batches).order_by()
    counts = jobs.values("status").annotate(count=Count("*")).values_list("status", "count")
    return dict(counts)
