"""The worker of the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import Min

from django_reliable_jobs import clock, registry
from django_reliable_jobs.context import StopFlag, current_job
from django_reliable_jobs.engine import (
    claim,
    exchange,
    heartbeat,
    inspection,
    lifecycle,
    limited,
    limits,
    lines,
    maintenance,
    waits,
)
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Ending, Outcome
from django_reliable_jobs.engine.transaction import around, default_database, open_blocks
from django_reliable_jobs.exceptions import Ending as UserEnding
from django_reliable_jobs.exceptions import JobFailed, UnknownTask
from django_reliable_jobs.models import Attempt, Job
from django_reliable_jobs.processes.execution import RELEASED, call_here, execute
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.reporting import write_progress
from django_reliable_jobs.processes.tally import announce, has_listeners
from django_reliable_jobs.progress import Progress
from django_reliable_jobs.registry import Task
from django_reliable_jobs.sync_only import refuse_on_event_loop
from django_reliable_jobs.testing.moments import as_moment


def run_jobs(
    *,
    until: timedelta | datetime | str | None = None,
    max_jobs: int = 1000,
    raise_errors: bool = True,
    using: str | None = None,
) -> list[Job]:
    """Run the jobs that are ready or due, and those that they enqueue, in this thread and connection; return them.

    With `until` (a span from now, or a moment as for `at()`) the clock moves from one due moment to the next, up to
    there: retries, snoozes and jobs enqueued for later run at their time. Without it they wait.

    What a job raises is raised here, after it was recorded; later jobs have not run then. `raise_errors=False` leaves
    it in the job's row and its attempts, and goes on. Retry, Snooze, Cancel and Fail are decisions of a task and no
    errors.

    Works inside a TestCase: each job runs in a savepoint, as its own connection would keep a failed statement from the
    test's transaction. Rates hold nothing back here. Raises RuntimeError after `max_jobs`: jobs that enqueue each other
    or put themselves off without end.
    """
    refuse_on_event_loop("run_jobs()", "`await sync_to_async(run_jobs)()`")
    using = using or default_database()
    limits.declare(using)
    drain = Drain(using, max_jobs, raise_errors)
    drain.run()
    if until is not None:
        start = inspection.now(using)
        end = start + until if isinstance(until, timedelta) else as_moment(until)
        while (moment := next_due(using)) is not None and moment <= end:
            with clock.moved_to(moment):
                drain.run()
    jobs = Job.objects.using(using).in_bulk(drain.ran)
    return [jobs[job_id] for job_id in dict.fromkeys(drain.ran) if job_id in jobs]


class Drain:
    """Runs what can run at the moment of the clock, in the order in which a worker would."""

    def __init__(
        self, using: str, max_jobs: int, raise_errors: bool, before_task: Callable[[], None] = lambda: None
    ) -> None:
        self.ran: list[int] = []
        self._using = using
        self._max_jobs = max_jobs
        self._raise_errors = raise_errors
        self._before_task = before_task  # called in the context of each job
        self._worker_id = heartbeat.new_identity("test", 0).id
        self._queues = QueueOrder()

    def run(self, is_enough: Callable[[], bool] = lambda: False) -> None:
        while not is_enough() and (job := self._claim()) is not None:
            if len(self.ran) >= self._max_jobs:
                _put_back(self._using, job)
                raise RuntimeError(
                    f"{self._max_jobs} jobs have run (max_jobs), and there are more: {self._ever_again()}"
                )
            self.ran.append(job.id)
            error = _run(self._using, job, self._before_task)
            if error is not None and self._raise_errors:
                error.add_note(
                    f"raised by job {job.id} ({job.task}), attempt {job.attempt} of {job.max_attempts};"
                    " raise_errors=False leaves it in the job's row"
                )
                raise error

    def _ever_again(self) -> str:
        for job_id, times in Counter(self.ran).most_common(1):
            if times > max(1, len(self.ran) / 2):
                return f"job {job_id} alone ran {times} times; does it put itself off for ever?"
        return "do they enqueue each other?"

    def _claim(self) -> ClaimedJob | None:
        while maintenance.promote(self._using) or waits.wake(self._using):
            pass
        return _claim_one(self._using, self._worker_id, self._queues)


def next_due(using: str) -> datetime | None:
    """Return when the next job is due that waits for its time only."""
    due = Job.objects.using(using).filter(status__in=("SCHEDULED", "WAITING")).aggregate(due=Min("run_after"))["due"]
    return due if due is None or isinstance(due, datetime) else None


def _put_back(using: str, job: ClaimedJob) -> None:
    lifecycle.end(using, [Ending(job.id, job.token, RELEASED)], worker="test:0")


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


def _run(using: str, job: ClaimedJob, before_task: Callable[[], None]) -> BaseException | None:
    """Run a claimed job, record how it ended, and return the error that it failed with."""
    raised: list[BaseException] = []

    def call(task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            before_task()
            return _call_in_savepoints(task, args, kwargs)
        except BaseException as error:
            raised.append(error)
            raise

    reset = around.set(open_blocks())
    progress = Progress()
    try:
        outcome = execute(job, StopFlag(), using=using, call=call, leave=lambda: None, progress=progress)
    finally:
        around.reset(reset)
        _allow_idleness(using)
    write_progress(using, [(job, progress)])
    if not outcome.is_recorded:
        lifecycle.end(using, [Ending(job.id, job.token, outcome)], worker="test:0")
    if has_listeners():
        announce(using, job, outcome, progress)
    return _error_of(using, job, outcome, raised)


def _allow_idleness(using: str) -> None:
    """Let the test's own transaction sit idle again, as at a breakpoint: the fence of a job has limited that."""
    if connections[using].in_atomic_block:
        with connections[using].cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout TO DEFAULT")


def _error_of(using: str, job: ClaimedJob, outcome: Outcome, raised: list[BaseException]) -> BaseException | None:
    if outcome.attempt is None and not outcome.uses_attempt and registry.find(job.task) is None:
        return UnknownTask(outcome.reason)
    if outcome.attempt != Attempt.Outcome.FAILED or isinstance(next(iter(raised), None), UserEnding):
        return None
    return raised[0] if raised else JobFailed(Job.objects.using(using).get(pk=job.id))


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
