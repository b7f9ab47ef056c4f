"""For the tests of projects: run jobs and schedules in the test's own thread and transaction, and move the clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connections
from django.utils import timezone

from django_reliable_jobs import clock
from django_reliable_jobs.context import StopFlag, current_job
from django_reliable_jobs.engine import (
    claim,
    exchange,
    heartbeat,
    lifecycle,
    limited,
    limits,
    lines,
    maintenance,
    waits,
)
from django_reliable_jobs.engine import tick as schedule_tick
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Ending
from django_reliable_jobs.engine.transaction import around, default_database, open_blocks
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes.execution import call_here, execute
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.reporting import write_progress
from django_reliable_jobs.progress import Progress
from django_reliable_jobs.registry import Task

__all__ = ["at", "run_jobs", "tick"]


@contextmanager
def at(moment: datetime) -> Iterator[None]:
    """Take `moment` for now inside the block: what is enqueued, due, promoted, claimed and recorded sees it.

    A naive moment is in the current time zone.
    """
    aware = timezone.make_aware(moment) if timezone.is_naive(moment) else moment
    with clock.moved_to(aware):
        yield


_at = at  # `tick` has an argument of this name


def tick(*, at: datetime | None = None, using: str | None = None) -> list[Job]:
    """Decide what is due of all schedules, now or at the moment `at`, as a scheduler does; return the jobs made.

    The jobs are made, not run: run them with `run_jobs()`, inside `at(moment)` if the clock was moved.
    """
    using = using or default_database()
    if at is not None:
        with _at(at):
            return tick(using=using)
    made: list[int] = []
    while (done := schedule_tick.tick(using)).due:
        made += done.jobs
    jobs = Job.objects.using(using).in_bulk(made)
    return [jobs[job_id] for job_id in made]


def run_jobs(*, using: str | None = None, max_jobs: int = 1000) -> list[Job]:
    """Run the jobs that are ready or due, and those that they enqueue, in this thread and connection; return them.

    Works inside a TestCase: each job runs in a savepoint, as its own connection would keep a failed statement from the
    test's transaction. Retries are not waited for: run them inside `at(later)`. Rates hold nothing back here. What a
    job raised is in its row and its attempts. Raises RuntimeError after `max_jobs`: jobs that enqueue each other
    without end.
    """
    using = using or default_database()
    identity, queues = heartbeat.new_identity("test", 0), QueueOrder()
    limits.declare(using)
    ran: list[int] = []
    while True:
        while maintenance.promote(using) or waits.wake(using):
            pass
        job = _claim_one(using, identity.id, queues)
        if job is None:
            break
        if len(ran) >= max_jobs:
            raise RuntimeError(f"run_jobs() ran {max_jobs} jobs and there are more; do they enqueue each other?")
        _run(using, job)
        ran.append(job.id)
    jobs = Job.objects.using(using).in_bulk(ran)
    return [jobs[job_id] for job_id in dict.fromkeys(ran) if job_id in jobs]


def _claim_one(using: str, worker_id: int, queues: QueueOrder) -> ClaimedJob | None:
    seen, found = claim.look(using), list[ClaimedJob]()
    if heads := [head for head in seen.heads if not head.is_capped]:
        arms = queues.arms(heads, queues.seats(heads, 1), 1)
        _, found = exchange.exchange(using, worker_id, [], arms, limit=1, free=1, alone=True)
    if not found and seen.limited:
        waiting = lines.find_lines(using, dict.fromkeys(seen.limited, ""), is_paced=False).lines
        waiting.sort(key=lambda line: -line.priority)
        claimed = limited.claim_lines(using, worker_id, waiting, limit=1, free=1, alone=True, is_paced=False)
        found = [job for _, job in claimed]
    if not found and (capped := [head for head in seen.heads if head.is_capped]):
        arms = queues.arms(capped, queues.seats(capped, 1), 1)
        found = limited.claim_capped(using, worker_id, arms, limit=1, free=1, alone=True)
    return next(iter(found), None)


def _run(using: str, job: ClaimedJob) -> None:
    reset = around.set(open_blocks())
    progress = Progress()
    try:
        outcome = execute(job, StopFlag(), using=using, call=_call_in_savepoints, leave=lambda: None, progress=progress)
    finally:
        around.reset(reset)
    write_progress(using, [(job, progress)])
    if not outcome.is_recorded:
        lifecycle.end(using, [Ending(job.id, job.token, outcome)], worker="test:0")


def _call_in_savepoints(task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a task so that its failed statements leave the test's transactions usable, and its other writes stay.

    An atomic task has a transaction of its own, which a failed statement spoils here as in a worker, though the task
    goes on.
    """
    own = current_job().using if task.atomic else None
    savepoints = {
        connection: savepoint
        for connection in connections.all(initialized_only=True)
        if connection.alias != own and connection.in_atomic_block and (savepoint := connection.savepoint())
    }
    try:
        return call_here(task, args, kwargs)
    finally:
        for connection, savepoint in savepoints.items():
            if connection.needs_rollback or not connection.is_usable():
                connection.needs_rollback = False
                connection.savepoint_rollback(savepoint)
            else:
                connection.savepoint_commit(savepoint)
