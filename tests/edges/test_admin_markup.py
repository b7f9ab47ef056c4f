"""Whatever text a job, a schedule, a worker or an alert carries, its markup is shown and not obeyed, on every page."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from django_reliable_jobs.models import (
    Alert,
    Attempt,
    CancelRequest,
    Checkpoint,
    Job,
    Leader,
    Limit,
    Progress,
    Queue,
    Schedule,
    Worker,
)
from tests.schedules import a_schedule

pytestmark = pytest.mark.django_db

INDEX = "/admin/django_reliable_jobs/"
MARKUP = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&"


def a_job(**row: Any) -> Job:
    now = timezone.now()
    texts = dict.fromkeys(("queue_name", "reason", "concurrency_key", "rate_key", "serial_key"), MARKUP)
    job = Job.objects.create(
        **{"task": MARKUP, "args": [MARKUP], "kwargs": {MARKUP: MARKUP}, "result": {MARKUP: MARKUP}, **texts, **row}
    )
    errors = dict.fromkeys(("worker", "error_class", "error_message", "traceback"), MARKUP)
    times = {"started_at": now, "finished_at": now}
    Attempt.objects.create(job=job, number=1, claim=job.claims or 1, outcome="failed", **times, **errors)
    said = {"name": MARKUP, "value": {MARKUP: MARKUP}, "error": MARKUP, "undo_error": MARKUP, "undo": MARKUP}
    for kind in ("step", "checkpoint"):
        Checkpoint.objects.create(job=job, run=1, kind=kind, undo_state="failed", token=1, saved_at=now, **said)
    Progress.objects.create(token=job.token or job.pk, job=job, run=1, claim=1, done=1, message=MARKUP, told_at=now)
    return job


@pytest.fixture
def addresses() -> list[str]:
    """The addresses of every page that shows the text."""
    Schedule.objects.all().delete()
    schedule = a_schedule(name=MARKUP, kwargs={"text": MARKUP})
    broken = {"error": MARKUP, "error_at": Now(), "retry_at": Now(), "paused_at": Now(), "pause_reason": MARKUP}
    Schedule.objects.filter(pk=schedule.pk).update(task=MARKUP, next_run_at=None, **broken)
    runs = {"token": 7, "worker_id": 1, "started_at": Now(), "claims": 1}
    running = a_job(status="RUNNING", schedule_id=schedule.pk, **runs)
    CancelRequest.objects.create(job=running, reason=MARKUP)
    dead = a_job(status="DEAD", finished_at=Now(), claims=1, schedule_id=schedule.pk)
    ready = a_job()
    lists = {"queues": [MARKUP], "excluded_queues": [MARKUP], "tasks": [MARKUP]}
    Worker.objects.create(id=1, host=MARKUP, pid=1, threads=1, expires_at="2100-01-01T00:00:00Z", **lists)
    Leader.objects.create(
        name="scheduler", holder=1, term=1, host=MARKUP, pid=1, elected_at=Now(), expires_at="2100-01-01T00:00:00Z"
    )
    Queue.objects.create(name=MARKUP, paused_at=Now())
    limit = Limit.objects.create(kind="concurrency", name=MARKUP, allowed=1)
    alert = Alert.objects.create(
        kind=MARKUP[:32],
        subject=MARKUP,
        severity="critical",
        message=MARKUP,
        acknowledged_at=Now(),
        acknowledged_by=MARKUP,
    )
    jobs = [f"job/{job.pk}/change/" for job in (running, dead, ready)]
    schedules = [f"schedule/{schedule.pk}/{page}" for page in ("change/", "runs/", "runs.csv")]
    lists_of = [f"{name}/" for name in ("alert", "job", "limit", "queue", "schedule", "worker")]
    return [
        *("", "job/overview/", "job/dead/", "job/?status=DEAD", f"job/?q={MARKUP}", "worker/1/change/", *lists_of),
        *(f"job/?{name}={MARKUP}" for name in ("queue", "task", "schedule", "worker", "error", "period", "status")),
        *(*jobs, *schedules, f"alert/{alert.pk}/change/", f"limit/{limit.pk}/change/", f"job/{ready.pk}/live/"),
    ]


def test_no_page_obeys_it(admin_client: Client, addresses: list[str]) -> None:
    showing = 0
    for address in addresses:
        response = admin_client.get(INDEX + address)
        if response["Content-Type"].startswith("text/csv"):
            continue
        page = response.content.decode()
        assert response.status_code == 200, address
        assert "<script>alert" not in page and "<img src=x" not in page, address
        showing += "&lt;script&gt;" in page
    assert showing > len(addresses) / 2, "the pages do show it"


def test_no_question_obeys_it(admin_client: Client, addresses: list[str]) -> None:
    ids = list(Job.objects.values_list("pk", flat=True))
    for action in ("retry", "cancel", "move_queue", "change_priority", "delete_jobs"):
        data = {"action": action, "_selected_action": [*ids, MARKUP], "of_page": MARKUP}
        response = admin_client.post(f"{INDEX}job/?q=x", {**data, "_selected_action": ids})
        page = response.content.decode()
        assert "<script>alert" not in page and "&lt;script&gt;" in page
        page = admin_client.post(
            f"{INDEX}job/", {**data, "_selected_action": ids, "confirmed": "yes", "reason": MARKUP}, follow=True
        ).content.decode()
        assert "<script>alert" not in page
