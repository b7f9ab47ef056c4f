"""The page of a job: what it is, why it does not run, how far it is, its attempts, and what may be done to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from django_reliable_jobs import masking
from django_reliable_jobs.admin import progress
from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.job_acts import ACTS
from django_reliable_jobs.admin.job_list import marked
from django_reliable_jobs.admin.words import as_json, breakable_moment, clock_time, done_in_words, span_in_words
from django_reliable_jobs.engine import history, inspection, obstacles, schedule_history
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.progress import of_claims
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Attempt, Batch, Checkpoint, Job, Worker

TEMPLATE = "admin/django_reliable_jobs/job/page.html"
MOST_ATTEMPTS = 20
MOST_CHILDREN = 50
LONGEST_RESULT = 200
Fact = tuple[str, SafeString | str]


def page(request: HttpRequest, model_admin: Any, job: Job) -> str:
    """Return the part of the page that is shown anew while the job lives."""
    using = default_database()
    now, site = inspection.now(using), model_admin.admin_site.name
    attempts = inspection.find_attempts(using, job.pk, limit=MOST_ATTEMPTS + 1)
    args, kwargs = masking.masked(job.task, job.args, job.kwargs)
    context = {
        "job": job,
        "state": marked(job.status),
        "request_to_cancel": inspection.find_cancel_request(using, job.pk) if job.status == "RUNNING" else None,
        "waits": obstacles.explain_waiting(using, job),
        "facts": list(_facts(using, job, site)),
        "moments": list(_moments(job, now)),
        "arguments": as_json(args, "args") if args else "",
        "keyword_arguments": as_json(kwargs, "kwargs") if kwargs else "",
        "result": "" if job.result is None else as_json(job.result, "result"),
        "how_far": progress.how_far(job) if progress.has_told(job) else "",
        "steps": _steps(using, job, now),
        **_children(using, job),
        "attempts": _attempts(using, job, attempts[:MOST_ATTEMPTS]),
        "has_older_attempts": len(attempts) > MOST_ATTEMPTS,
        "acts": [act for act in ACTS.values() if act.allows(job) and model_admin.may(request, act)],
        "act_url": address(site, "job_changelist"),
        "at": as_local(now),
    }
    return render_to_string(TEMPLATE, context, request)


def _facts(using: str, job: Job, site: str) -> Iterator[Fact]:
    jobs = address(site, "job_changelist")
    yield _("Task"), format_html('<a href="{}?{}">{}</a>', jobs, urlencode({"task": job.task}), job.task)
    yield _("Queue"), format_html("{}, {} {}", job.queue_name, _("priority"), job.priority)
    if job.schedule_id is not None:
        yield _("Schedule"), _schedule(using, job, site)
    losses = f", {job.losses} {_('lost')}" if job.losses else ""
    yield _("Attempts"), _("%(used)s used of %(allowed)s") % {"used": job.attempt, "allowed": job.max_attempts} + losses
    if job.run > 1:
        yield _("Run"), str(job.run)
    if job.worker_id is not None:
        worker = Worker.objects.using(using).filter(pk=job.worker_id).first()
        yield _("Worker"), str(worker) if worker else _("gone since")
    for label, key in (
        (_("Concurrency key"), job.concurrency_key),
        (_("Rate key"), job.rate_key),
        (_("One after another"), job.serial_key),
    ):
        if key:
            yield label, key
    if job.unique_hash is not None:
        yield _("Unique"), _("until it starts") if job.unique_until_start else _("until it ends")
    if job.compensation != Job.Compensation.NONE:
        yield _("Undo"), str(Job.Compensation(job.compensation).label)
    if job.parent_id is not None:
        parent = address(site, "job_change", job.parent_id)
        yield _("Parent"), format_html('<a href="{}">#{}</a>', parent, job.parent_id)


def _schedule(using: str, job: Job, site: str) -> SafeString:
    name = schedule_history.name_of(using, job.schedule_id or 0)
    slot = _("run by hand") if job.slot is None else f"{_('slot')} {as_local(job.slot)}"
    return format_html('<a href="{}">{}</a>, {}', address(site, "schedule_change", job.schedule_id), name, slot)


def _moments(job: Job, now: datetime) -> Iterator[tuple[str, SafeString | str, SafeString | str]]:
    """Yield what happened, when in the reader's zone, and when in UTC."""
    for label, moment in (
        (_("Enqueued"), job.created_at),
        (_("Due"), job.run_after),
        (_("First started"), job.first_started_at if job.first_started_at != job.started_at else None),
        (_("Started"), job.started_at),
        (_("Finished"), job.finished_at),
        (_("Expires"), job.expires_at),
        (_("To start before"), job.start_before),
    ):
        if moment is not None:
            local, utc = as_local(moment), f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            yield label, breakable_moment(local), "" if local == utc else breakable_moment(utc)
    first = job.first_started_at or job.started_at
    if first is not None:
        yield (
            _("Waited"),
            span_in_words(first - max(job.run_after if job.claims <= 1 else job.created_at, job.created_at)),
            "",
        )
    if job.started_at is not None and job.status in ("RUNNING", *Job.ENDED):
        yield _("Ran for"), span_in_words((job.finished_at or now) - job.started_at), ""


def _steps(using: str, job: Job, now: datetime) -> list[dict[str, Any]]:
    rows = history.find_steps(Checkpoint.objects.using(using), job.pk, job.run)
    return [_step(row, now) for row in rows]


def _step(row: Checkpoint, now: datetime) -> dict[str, Any]:
    status = history.status_of(row, now)
    undo = "" if row.undo_state is None else str(Checkpoint.State(row.undo_state).label)
    if status.undo == "to do":
        undo = _("can be undone")
    return {
        "name": row.name,
        "kind": str(Checkpoint.Kind(row.kind).label),
        "state": str(Checkpoint.State(status.state).label),
        "mark": {"done": "well", "failed": "badly", "trying": "paused", "waiting": "waiting"}[status.state],
        "tries": row.tries or "",
        "since": clock_time(status.since, now),
        "took": "-" if status.took is None else span_in_words(status.took),
        "until": "" if row.until is None else as_local(row.until),
        "result": Truncator(row.error or json.dumps(row.value, ensure_ascii=False)).chars(LONGEST_RESULT),
        "undo": ": ".join(filter(None, [undo, row.undo_error])),
    }


def _children(using: str, job: Job) -> dict[str, Any]:
    batches = Batch.objects.filter(parent_id=job.pk).values("pk")
    found = Job.objects.using(using).filter(batch_id__in=batches).only("pk", "task", "status").order_by("pk")
    rows = list(found[: MOST_CHILDREN + 1])
    return {
        "children": [{"row": each, "state": marked(each.status)} for each in rows[:MOST_CHILDREN]],
        "has_more_children": len(rows) > MOST_CHILDREN,
    }


def _attempts(using: str, job: Job, attempts: list[Attempt]) -> list[dict[str, Any]]:
    told = of_claims(using, job.pk, [each.claim for each in attempts]) if attempts else {}
    retried = history.retried_after(job, attempts)
    return [
        {
            "row": each,
            "heading": _before_retry(each, retried.get(each.claim)),
            "outcome": Attempt.Outcome(each.outcome).label,
            "mark": {"failed": "badly", "lost": "badly"}.get(each.outcome, "idle"),
            "started": as_local(each.started_at),
            "took": span_in_words(each.duration),
            "error": ": ".join(filter(None, [each.error_class, each.error_message])),
            "progress": done_in_words(at.done, at.total, at.skipped) if (at := told.get(each.claim)) else "",
            "is_newest": place == 0,
        }
        for place, each in enumerate(attempts)
    ]


def _before_retry(attempt: Attempt, is_from_start: bool | None) -> str:
    if is_from_start is None:
        return ""
    if is_from_start:
        return _("Run %(run)s, before the job was retried from the start") % {"run": attempt.run}
    return _("Before the job was retried; since then, attempts are counted anew")
