"""Workflows in tests: over days of sleep in no time, up to a step or a wait."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime
from typing import Any

from django.db.models import Exists, Max, Min, OuterRef

from django_reliable_jobs import clock
from django_reliable_jobs.context import current_job
from django_reliable_jobs.engine import inspection
from django_reliable_jobs.models import Checkpoint, Job, Wait
from django_reliable_jobs.testing.running import Drain

ON_TIME = (Job.Status.SCHEDULED, Job.Status.WAITING)  # go on at their moment, unless they wait for something else too


def run_workflow(job: Job, *, until: str | None = None, raise_errors: bool = True, max_jobs: int = 1000) -> Job:
    """Run a job of steps until it has ended, or waits for an event that nobody has emitted, and return it.

    The clock moves over its sleeps and the pauses between its tries, and over those of its children. `until` names a
    step, sleep or event (also its part before a colon: "shipped" for "shipped:42"): there the job stands still, with
    all done that comes before, and the next call goes on from there, at the moment of the clock then. Other jobs that
    are ready run too. Errors are raised as by `run_jobs()`; a job that stands anywhere else in the end, or has gone
    past, is an AssertionError.
    """
    using = job._state.db or "default"
    halt = _Halt(job.pk, until)
    drain = Drain(using, max_jobs, raise_errors, before_task=halt.watch)
    moment = _later_than_now(using, job)  # of an earlier call, whose clock went ahead
    while True:
        with nullcontext() if moment is None else clock.moved_to(moment):
            drain.run(lambda: halt.is_reached)
            job.refresh_from_db()
            due = None if halt.is_reached or job.has_ended else _goes_on_at(using, job)
            if due is None:
                break
            moment = max(due, inspection.now(using))
    if until is not None and not halt.is_reached and not _waits_for(using, job, until):
        raise AssertionError(f"job {job.pk} never came to {until!r}: it is {job.status} ({_stand(using, job)})")
    return job


class _Halt:
    """Ends the attempt of one job as a stopping worker would, before it begins the step of a name."""

    def __init__(self, job_id: int, name: str | None) -> None:
        self.is_reached = False
        self._job_id = job_id
        self._name = name

    def watch(self) -> None:
        context = current_job()
        port: Any = context._port
        if self._name is None or context.id != self._job_id:
            return
        ask = port.ask

        def halting(name: str, kind: str, function: str | None = None) -> Any:
            asked = ask(name, kind, function)
            is_done = asked.stored is not None and asked.stored.state in ("done", "failed")
            if kind != "event" and not is_done and _is_called(asked.name, self._name):
                self.is_reached = True
                context._stop.reason = "shutdown"
                context.raise_if_stopping()
            return asked

        port.ask = halting


def _is_called(name: str, wanted: str | None) -> bool:
    return wanted is not None and (name == wanted or name.startswith(f"{wanted}:"))


def _later_than_now(using: str, job: Job) -> datetime | None:
    """Return the moment at which the job's history was written last, if that is yet to come."""
    last = Checkpoint.objects.using(using).filter(job=job).aggregate(last=Max("saved_at"))["last"]
    return last if last is not None and last > inspection.now(using) else None


def _goes_on_at(using: str, job: Job) -> datetime | None:
    """Return when the job, or one that its children may be, goes on by itself.

    None if it waits for an event, or all of them do, was ready and could not start, or runs elsewhere.
    """
    waits = Wait.objects.using(using).filter(is_satisfied=False)
    wait = waits.filter(job=job).first() if job.status == Job.Status.WAITING else None
    if wait is not None and wait.event is None:
        jobs = Job.objects.using(using).exclude(Exists(waits.filter(job=OuterRef("pk"))), status=Job.Status.WAITING)
        due: datetime | None = jobs.filter(status__in=ON_TIME).aggregate(due=Min("run_after"))["due"]
        return due
    return job.run_after if wait is None and job.status in ON_TIME else None


def _waits_for(using: str, job: Job, name: str) -> bool:
    waits = Wait.objects.using(using).filter(job=job, is_satisfied=False).values_list("event", flat=True)
    return any(_is_called(event or "", name) for event in waits)


def _stand(using: str, job: Job) -> str:
    done = Checkpoint.objects.using(using).filter(job=job, run=job.run).exclude(kind="checkpoint").order_by("id")
    names = ", ".join(done.values_list("name", flat=True)) or "nothing"
    return f"{job.reason or 'no reason'}; done or begun: {names}"
