"""`jobs list`: jobs, newest first."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_reliable_jobs import registry
from django_reliable_jobs.engine import inspection
from django_reliable_jobs.exceptions import UnknownTask
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_filters, add_verb, count, job_id
from django_reliable_jobs.management.jobs.moments import distance, span
from django_reliable_jobs.management.jobs.report import Report, table
from django_reliable_jobs.models import Job

_COLUMNS = (
    *("id", "task", "queue_name", "status", "priority", "attempt", "max_attempts"),
    *("created_at", "run_after", "started_at", "finished_at"),
)


def add_list(verbs: Verbs) -> None:
    parser = add_verb(verbs, "list", list_jobs, "List jobs, newest first.")
    add_filters(parser, [each.value for each in Job.Status])
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="at most so many (default: 20)")
    parser.add_argument("--before", type=job_id, metavar="ID", help="only jobs older than this one: the next page")


def list_jobs(using: str, options: Options) -> Report:
    filters = {"status": options["status"], "queue_name": options["queue"], "task": options["task"]}
    limit = options["limit"]
    wanted = inspection.find_jobs(using, before=options["before"], **filters).only(*_COLUMNS)
    found = list(wanted[: limit + 1])
    jobs = found[:limit]
    next_before = jobs[-1].pk if len(found) > limit else None
    lines = _lines(jobs, inspection.now(using), options["width"])
    if not jobs:
        lines = ["No job matches.", *_explain_task(options["task"])]
    if next_before is not None:
        lines += ["", f"There are older ones: --before {next_before}"]
    return Report({"jobs": [columns_of(job) for job in jobs], "next_before": next_before}, lines)


def columns_of(job: Job) -> dict[str, Any]:
    """Return what a script may want to know of a job in a list."""
    return {name: getattr(job, name) for name in _COLUMNS}


def _lines(jobs: list[Job], now: datetime, width: int | None) -> list[str]:
    headings = ["ID", "STATUS", "TASK", "QUEUE", "PRIO", "ATTEMPT", "WHEN"]
    rows = [
        [
            *(job.pk, job.status, job.task, job.queue_name, job.priority),
            *(f"{job.attempt}/{job.max_attempts}", _when(job, now)),
        ]
        for job in jobs
    ]
    return table(headings, rows, width=width, cut="TASK")


def _when(job: Job, now: datetime) -> str:
    if job.finished_at is not None:
        return f"ended {distance(job.finished_at, now=now)}"
    if job.status == Job.Status.RUNNING and job.started_at is not None:
        return f"runs for {span(now - job.started_at)}"
    if job.run_after > now:
        return f"due {distance(job.run_after, now=now)}"
    return f"waits for {span(now - job.run_after)}"


def _explain_task(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        registry.get(name)
    except UnknownTask as error:
        return [f"And {error}"]
    return []
