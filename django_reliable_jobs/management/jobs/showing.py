"""`jobs show`: all about one job."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_reliable_jobs import masking
from django_reliable_jobs.engine import history, inspection, obstacles, progress, schedule_history
from django_reliable_jobs.engine.inspection import WorkerStatus, as_local
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb, count, job_id
from django_reliable_jobs.management.jobs.listing import columns_of
from django_reliable_jobs.management.jobs.moments import moment_from, span
from django_reliable_jobs.management.jobs.progress import as_text, progress_data, progress_lines
from django_reliable_jobs.management.jobs.report import Report, printable, printable_lines
from django_reliable_jobs.management.jobs.steps import family_data, family_lines, step_data, step_lines
from django_reliable_jobs.models import Attempt, CancelRequest, Job, Progress

_ALSO = (
    *("args", "kwargs", "result", "reason", "claims", "losses", "run", "first_started_at", "expires_at"),
    *("start_before", "schedule_id", "slot", "unique_until_start", "compensation", "meta"),
)
_ATTEMPT = (
    *("number", "claim", "run", "outcome", "started_at", "finished_at", "worker"),
    *("error_class", "error_message", "traceback"),
)
SHORT_JSON = 80


def add_show(verbs: Verbs) -> None:
    parser = add_verb(verbs, "show", show, "Show one job: its arguments, its times, its attempts, why it does not run.")
    parser.add_argument("id", type=job_id, metavar="ID")
    parser.add_argument(
        "--attempts", type=count, default=20, metavar="N", help="show the last N attempts that failed (default: 20)"
    )


def show(using: str, options: Options) -> Report:
    job, limit = _job_of(using, options["id"]), options["attempts"]
    attempts = inspection.find_attempts(using, job.pk, limit=limit + 1)
    waits = obstacles.explain_waiting(using, job)
    worker, request = _worker_of(using, job), inspection.find_cancel_request(using, job.pk)
    standing = progress.standing_of(using, job)
    steps, now = history.steps_of(using, job), inspection.now(using)
    return Report(
        data={
            **_data(job),
            "worker": None if worker is None else f"{worker.host}:{worker.pid}",
            "cancel_requested": None if request is None else request.reason,
            "waits_because": waits,
            **progress_data(standing),
            "steps": step_data(steps),
            **family_data(using, job),
            "attempts": [{name: getattr(each, name) for name in _ATTEMPT} for each in attempts[:limit]],
            "has_older_attempts": len(attempts) > limit,
        },
        lines=[
            f"Job {job.pk}  {job.status}  {printable(job.task)}",
            "",
            *_fields(job, now, None if job.schedule_id is None else schedule_history.name_of(using, job.schedule_id)),
            *_now_running(job, worker, request),
            *_waiting_lines(waits),
            *progress_lines(job, standing, now),
            *step_lines(steps, job.run, now, is_undone=job.compensation != Job.Compensation.NONE),
            *family_lines(using, job),
            *_attempt_lines(job, attempts, limit, progress.of_claims(using, job.pk, [each.claim for each in attempts])),
        ],
    )


def _job_of(using: str, job_id: int) -> Job:
    job = Job.objects.using(using).filter(pk=job_id).first()
    if job is None:
        raise CommandError(f"There is no job {job_id}; it may have been pruned after it ended.")
    return job


def _data(job: Job) -> dict[str, Any]:
    also = {name: getattr(job, name) for name in _ALSO}
    args, kwargs = masking.masked(job.task, job.args, job.kwargs)
    return {**columns_of(job), **also, "args": args, "kwargs": kwargs, "is_unique": job.unique_hash is not None}


def _worker_of(using: str, job: Job) -> WorkerStatus | None:
    if job.status != Job.Status.RUNNING:
        return None
    return next((each for each in inspection.workers(using) if each.id == job.worker_id), None)


def _fields(job: Job, now: datetime, schedule: str | None) -> list[str]:
    ran = None if job.started_at is None or job.finished_at is None else span(job.finished_at - job.started_at)
    finished = moment_from(job.finished_at, now=now)
    args, kwargs = masking.masked(job.task, job.args, job.kwargs)
    fields = {
        "queue": f"{job.queue_name}, priority {job.priority}",
        "attempts": f"{job.attempt} used, of {job.max_attempts}" + (f"; {job.losses} lost" if job.losses else ""),
        "args": _as_json(args) if args else None,
        "kwargs": _as_json(kwargs) if kwargs else None,
        "result": None if job.result is None else _as_json(job.result),
        "reason": job.reason,
        "enqueued": moment_from(job.created_at, now=now),
        "due": moment_from(job.run_after, now=now),
        "started": moment_from(job.started_at, now=now),
        "finished": f"{finished}, it ran for {ran}" if ran else finished,
        "expires": moment_from(job.expires_at, now=now),
        "start before": moment_from(job.start_before, now=now),
        "schedule": schedule,
        "slot": None if job.slot is None else as_local(job.slot),
        "compensation": None if job.compensation == Job.Compensation.NONE else job.compensation,
    }
    return [line for name, value in fields.items() if value is not None for line in _field(name, value)]


def _as_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHORT_JSON else json.dumps(value, ensure_ascii=False, indent=2)


def _field(name: str, text: str) -> list[str]:
    first, *others = printable_lines(text) or [""]
    return [f"  {name:<14}{first}", *(f"{'':16}{each}" for each in others)]


def _now_running(job: Job, worker: WorkerStatus | None, request: CancelRequest | None) -> list[str]:
    if job.status != Job.Status.RUNNING:
        return []
    if worker is None:
        lines = _field("worker", "not on the list of workers")
    else:
        heartbeat = f"last heartbeat {span(worker.heartbeat_age)} ago"
        lines = _field("worker", f"{worker.host}:{worker.pid}, {worker.state}, {heartbeat}")
    if request is not None:
        asked = f"asked for at {as_local(request.requested_at)}: {request.reason}"
        lines += _field("cancel", f"{asked} (ends at its next safe point)")
    return lines


def _waiting_lines(sentences: list[str]) -> list[str]:
    if not sentences:
        return []
    return ["", "Why it does not run yet", *(f"  - {printable(each)}" for each in sentences)]


def _attempt_lines(job: Job, attempts: list[Attempt], limit: int, came_to: dict[int, Progress]) -> list[str]:
    if not attempts:
        return []
    lines = ["", "Attempts that did not succeed, newest first"]
    last: Attempt | None = None
    retried = history.retried_after(job, attempts[:limit])
    for attempt in attempts[:limit]:
        took, at = span(attempt.duration), as_local(attempt.started_at)
        told = came_to.get(attempt.claim)
        lines += [
            *_before_retry(attempt, retried.get(attempt.claim)),
            "",
            f"  {attempt.number}  {attempt.outcome} after {took}, started {at} on {printable(attempt.worker)}"
            + ("" if told is None else f": {as_text(told)}"),
        ]
        error = ": ".join(filter(None, [attempt.error_class, attempt.error_message]))
        lines += [f"     {each}" for each in printable_lines(error)]
        if last is not None and attempt.traceback and attempt.traceback == last.traceback:
            lines.append("     (the traceback is that of the attempt above)")
        else:
            lines += [f"       {each}" for each in printable_lines(attempt.traceback)]
        last = attempt
    return [*lines, "", f"  Older attempts are not shown: --attempts {2 * limit}"] if len(attempts) > limit else lines


def _before_retry(attempt: Attempt, is_from_start: bool | None) -> list[str]:
    if is_from_start is None:
        return []
    if is_from_start:
        return ["", f"Run {attempt.run}, before the job was retried from the start"]
    return ["", "Before the job was retried; since then, attempts are counted anew"]
