"""The page that answers first: what waits, what ran, what did not and why, who works. On top of the app's index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from django_reliable_jobs.admin.addresses import site_of
from django_reliable_jobs.admin.overview_schedules import schedules
from django_reliable_jobs.admin.throughput import MINUTES, throughput
from django_reliable_jobs.admin.words import (
    at_least,
    clock_time,
    queues_in_words,
    span_in_words,
    state_in_words,
    waiting_in_words,
    when,
)
from django_reliable_jobs.engine import counters, inspection, standings
from django_reliable_jobs.engine.inspection import QueueStatus, WorkerStatus, as_local
from django_reliable_jobs.engine.standings import Running
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Alert

TEMPLATE = "admin/django_reliable_jobs/overview.html"
MOST_ALERTS = 5  # what comes below them is to be seen too
MOST_WORKERS = 50
MOST_JOBS_OF_WORKER = 5
MOST_TASKS = 5
SECTIONS = ("alert", "schedule", "queue", "worker", "job")  # each for who may view the rows behind it


@dataclass(frozen=True)
class Work:
    """One worker, with the jobs that it has run for longest."""

    status: WorkerStatus
    state: str
    memory: str
    served: str
    seen: str
    jobs: list[tuple[Running, str]]
    more: int


def overview(request: HttpRequest) -> str:
    """Return the overview as HTML: the sections that this person may see."""
    shown = {name for name in SECTIONS if request.user.has_perm(f"django_reliable_jobs.view_{name}")}
    using = default_database()
    now = inspection.now(using)
    parts: dict[str, Callable[[str, datetime], dict[str, Any]]] = {
        "alert": _alerts,
        "schedule": partial(schedules, site=site_of(request), sees_jobs="job" in shown),
        "queue": _queues,
        "worker": _workers,
        "job": _jobs,
    }
    context: dict[str, Any] = {"shown": shown, "at": as_local(now)}
    for name in SECTIONS:
        if name in shown:
            context |= parts[name](using, now)
    return render_to_string(TEMPLATE, context, request)


def overview_view(request: HttpRequest) -> HttpResponse:
    """Answer with the overview alone, for the script that shows it anew."""
    if not any(request.user.has_perm(f"django_reliable_jobs.view_{name}") for name in SECTIONS):
        raise PermissionDenied
    response = HttpResponse(overview(request))
    response["Cache-Control"] = "no-store"
    return response


def _alerts(using: str, now: datetime) -> dict[str, Any]:
    found = list(
        Alert.objects.using(using).filter(resolved_at=None).order_by("severity", "-opened_at")[: MOST_ALERTS + 1]
    )
    return {
        "alerts": [{"row": each, "span": span_in_words(now - each.opened_at)} for each in found[:MOST_ALERTS]],
        "has_more_alerts": len(found) > MOST_ALERTS,
    }


def _queues(using: str, now: datetime) -> dict[str, Any]:
    everything = inspection.pause_of_all(using)
    return {
        "queues": [
            {
                "status": each,
                "state": _state_of(each),
                "waits": span_in_words(each.oldest) if each.oldest else "-",
                **waiting_in_words(each),
            }
            for each in inspection.queues(using, most=inspection.MOST_COUNTED)
        ],
        "paused_since": clock_time(everything.paused_at, now) if everything and everything.paused_at else "",
    }


def _state_of(queue: QueueStatus) -> tuple[str, str]:
    """Return the mark and the words for a queue's state."""
    if queue.paused_at is not None:
        until = f" {_('until')} {as_local(queue.resume_at)}" if queue.resume_at else ""
        return "paused", f"{_('paused')}{until}"
    if queue.workers:
        return "well", _("served")
    return ("badly" if queue.ready or queue.scheduled else "idle"), _("no worker serves it")


def _workers(using: str, now: datetime) -> dict[str, Any]:
    running = defaultdict[int, list[Running]](list)
    for each in standings.running(using):
        running[each.worker_id].append(each)
    found = inspection.workers(using)
    leader = standings.leader(using)
    return {
        "workers": [_work(each, running[each.id], now) for each in found[:MOST_WORKERS]],
        "has_more_workers": len(found) > MOST_WORKERS,
        "leader": leader,
        "leader_span": "" if leader is None else span_in_words(now - leader.elected_at),
    }


def _work(worker: WorkerStatus, running: list[Running], now: datetime) -> Work:
    shown = running[:MOST_JOBS_OF_WORKER]
    return Work(
        status=worker,
        state=state_in_words(worker.state),
        memory="-" if worker.memory is None else filesizeformat(worker.memory),
        served=queues_in_words(worker.queues, worker.excluded_queues),
        seen=when(now - worker.heartbeat_age, now),
        jobs=[(each, span_in_words(now - each.started_at)) for each in shown],
        more=worker.running - len(shown),
    )


def _jobs(using: str, now: datetime) -> dict[str, Any]:
    most = inspection.MOST_COUNTED
    dead = inspection.dead_by_task(using, most=most)
    total, has_more = sum(min(count, most) for count in dead.values()), max(dead.values(), default=0) > most
    return {
        "throughput": throughput(counters.per_minute(using, timedelta(minutes=MINUTES)), now),
        "hours": MINUTES // 60,
        "dead": [
            {"task": task, "count": at_least(min(count, most), count > most)}
            for task, count in list(dead.items())[:MOST_TASKS]
        ],
        "dead_total": at_least(total, has_more),
    }
