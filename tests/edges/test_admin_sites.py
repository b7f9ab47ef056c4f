"""The pages on a site of the project's own, and with the jobs in a database of their own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path

from django_reliable_jobs.models import Alert, CancelRequest, Job, Limit, Schedule, Worker
from tests.browser.scene import a_morning

night = admin.AdminSite(name="night")
for model, model_admin in list(admin.site._registry.items()):
    if model._meta.app_label == "django_reliable_jobs":
        night.register(model, type(model_admin))
urlpatterns = [path("admin/", admin.site.urls), path("night/", night.urls)]

INDEX = "django_reliable_jobs/"


class JobsElsewhere:
    """Sends the rows of the app, and no others, to a database of their own."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "jobs" if model._meta.app_label == "django_reliable_jobs" else None

    db_for_write = db_for_read


def all_pages() -> list[str]:
    a_morning()
    parent = Job.objects.filter(status="RUNNING").order_by("pk")[0]
    Job.objects.filter(status="DEAD").update(parent_id=parent.pk, schedule_id=Schedule.objects.all()[0].pk)
    Limit.objects.create(kind="concurrency", name="x", allowed=1)
    rows = [Alert.objects.all()[0], Worker.objects.all()[0], Limit.objects.all()[0], *Schedule.objects.all()]
    rows += [Job.objects.filter(status=status)[0] for status in ("RUNNING", "DEAD", "READY", "SUCCEEDED")]
    pages = [f"{row._meta.model_name}/{row.pk}/change/" for row in rows]
    pages += [f"{name}/" for name in ("alert", "job", "limit", "queue", "schedule", "worker")]
    pages += [
        f"schedule/{pk}/{page}"
        for pk in Schedule.objects.values_list("pk", flat=True)
        for page in ("runs/", "runs.csv")
    ]
    return ["", "job/overview/", "job/dead/", "job/enqueue/", f"job/{parent.pk}/live/", *pages]


def elsewhere_in(response: Any) -> list[str]:
    """The addresses of the other site on a page."""
    found: list[str] = re.findall(r"[\"'](/admin/[^\"']*)", response.content.decode())
    return found


@pytest.mark.django_db
@pytest.mark.urls("tests.edges.test_admin_sites")
def test_a_site_of_its_own_leads_to_no_other(admin_client: Client) -> None:
    for page in all_pages():
        response = admin_client.get(f"/night/{INDEX}{page}")
        assert response.status_code == 200, page
        assert elsewhere_in(response) == [], page
    job_id = Job.objects.filter(status="DEAD")[0].pk
    for data in ({}, {"confirmed": "yes"}):
        act = {"action": "retry", "index": "0", "_selected_action": job_id, "of_page": job_id, **data}
        response = admin_client.post(f"/night/{INDEX}job/", act)
        assert elsewhere_in(response) == []
    assert response["Location"].startswith("/night/")


def test_every_row_is_read_and_written_where_the_router_sends_it(
    jobs_database: str, client: Client, settings: Any
) -> None:
    client.force_login(User.objects.create_superuser("root"))
    pages = all_pages()
    settings.DATABASE_ROUTERS = ["tests.edges.test_admin_sites.JobsElsewhere"]
    with CaptureQueriesContext(connection) as captured, CaptureQueriesContext(connections[jobs_database]) as elsewhere:
        for page in pages:
            assert client.get(f"/admin/{INDEX}{page}").status_code == 200, page
        acts = {"retry": "DEAD", "cancel": "RUNNING", "move_queue": "READY", "change_priority": "READY"}
        for action, status in acts.items():
            job_id = Job.objects.filter(status=status)[0].pk
            data = {"action": action, "index": "0", "_selected_action": job_id, "confirmed": "yes"}
            client.post(f"/admin/{INDEX}job/", {**data, "queue_name": "x", "priority": "3"})
        client.post(f"/admin/{INDEX}queue/act/", {"act": "pause", "name": "mail"})
        client.post(f"/admin/{INDEX}schedule/{Schedule.objects.all()[0].pk}/act/", {"act": "pause"})
    strayed = [
        each["sql"] for each in captured.captured_queries if re.search(r"[\s\"]django_reliable_jobs_", each["sql"])
    ]
    assert strayed == []
    assert len(elsewhere) > len(pages)
    assert Job.objects.filter(queue_name="x").exists() and Job.objects.filter(priority=3).exists()
    assert CancelRequest.objects.count() == 1 and LogEntry.objects.count() >= 5
