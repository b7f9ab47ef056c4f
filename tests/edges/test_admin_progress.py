"""How far a job is, on its page in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_reliable_jobs.engine import progress
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.progress import Report
from tests import batch_tasks, tasks
from tests.claims import SUCCESS, claim_one_as, end
from tests.items import some_items
from tests.recorded import run_jobs

pytestmark = pytest.mark.django_db


def page(client: Client, job_id: int) -> str:
    return client.get(reverse("admin:django_reliable_jobs_job_change", args=[job_id])).content.decode()


def a_job_that_told(**told: Any) -> ClaimedJob:
    tasks.nothing.enqueue()
    job = claim_one_as(1)
    given = {"done": 4520, "total": 10_000, "skipped": 3, "rate": 1234.4, "message": "<b>bold</b>", **told}
    progress.write("default", [Report(token=job.token, job_id=job.id, run=1, claim=1, **given)])
    return job


def test_a_running_job_shows_a_bar_its_rate_and_the_time_left(admin_client: Client) -> None:
    text = page(admin_client, a_job_that_told().id)
    assert '<progress value="4520" max="10000"></progress>' in text
    assert "4,520 of 10,000 done, 3 skipped" in text
    assert "1,234.4 per second, about 4 s left" in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text


def test_a_job_that_has_ended_shows_how_far_it_came(admin_client: Client) -> None:
    job = a_job_that_told(total=None)
    assert end(job, SUCCESS)
    text = page(admin_client, job.id)
    assert "4,520 done, 3 skipped" in text
    assert "<progress" not in text
    assert "per second" not in text


def test_it_shows_batches_and_what_was_skipped(admin_client: Client) -> None:
    items = some_items(60)
    job = batch_tasks.skip_odd.enqueue()
    run_jobs()
    text = page(admin_client, job.pk)
    assert "tests.Item: 60 done, 30 skipped" in text
    assert f"<li>Item {items[0].pk}: ValueError: place 1</li>" in text
    assert text.count("<li>Item ") == 20
    assert "last checkpoint: batches:tests.Item at " in text


def test_a_job_that_tells_nothing_has_no_such_section(admin_client: Client) -> None:
    assert "how far" not in page(admin_client, tasks.nothing.enqueue().pk).lower()
    assert "how far" in page(admin_client, a_job_that_told().id).lower()
