"""No page of the admin has a script or a style of its own in its markup: a strict Content-Security-Policy holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from django_reliable_jobs.models import Alert, Job, Schedule, Worker
from tests.browser.scene import a_morning

PACKAGE = Path(__file__).resolve().parent.parent.parent / "django_reliable_jobs"
INLINE = [
    r"<style\b",
    r"<script(?![^>]*\bsrc=)[^>]*>",
    r"<[a-z][^>]*\sstyle\s*=",
    r"<[a-z][^>]*\son[a-z]+\s*=",
    r"(?:href|action|src)\s*=\s*[\"']?\s*javascript:",
]
ELSEWHERE = r"(?:src|href)=[\"'](?:https?:)?//"


def test_no_page_has_any_inline_and_none_loads_from_elsewhere(admin_client: Client) -> None:
    a_morning()
    index = reverse("admin:app_list", args=["django_reliable_jobs"])
    pages = [index, reverse("admin:django_reliable_jobs_overview")]
    pages += [f"{index}{model}/" for model in ("alert", "job", "limit", "queue", "schedule", "worker")]
    pages += [f"{index}schedule/add/", f"{index}job/dead/", f"{index}job/enqueue/"]
    pages += [f"{index}job/enqueue/?task=tests.tasks.by_hand", *_pages_of_rows()]
    pages += [f"{index}schedule/{pk}/runs/" for pk in Schedule.objects.values_list("pk", flat=True)]
    for page in pages:
        response = admin_client.get(page)
        assert response.status_code == 200, page
        text = response.content.decode()
        assert [found for fault in INLINE for found in re.findall(fault, text)] == [], page
        assert re.findall(ELSEWHERE, text) == [], page


def _pages_of_rows() -> list[str]:
    rows = [Alert.objects.first(), Worker.objects.first(), *Schedule.objects.all()]
    rows += [Job.objects.filter(status=status).first() for status in ("RUNNING", "DEAD", "READY", "SUCCEEDED")]
    return [
        reverse(f"admin:django_reliable_jobs_{row._meta.model_name}_change", args=[row.pk])
        for row in rows
        if row is not None
    ]


@pytest.mark.parametrize(
    "fault", ["<p style='x'>", "<style>", "<script>x()</script>", '<a onclick="x()">', '<a href="javascript:x()">']
)
def test_these_would_be_found(fault: str) -> None:
    assert any(re.search(each, fault) for each in INLINE)


def test_no_script_of_ours_makes_any() -> None:
    for script in PACKAGE.rglob("*.js"):
        text = script.read_text()
        assert not re.search(r"\beval\(|\bFunction\(|setAttribute\([\"'](?:style|on)|\.style\b|https?://", text), script
