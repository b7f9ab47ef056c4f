"""Where very many jobs wait or are dead, the pages count no further than so many, and say so."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.utils.html import strip_tags

from django_reliable_jobs.engine import inspection
from django_reliable_jobs.models import Job
from tests import tasks
from tests.edges.test_admin import PAGES

OVERVIEW, QUEUES = f"{PAGES}job/overview/", f"{PAGES}queue/"


def shown(client: Client, url: str) -> str:
    """The words of a page, and of each cell of its tables, with one space between."""
    page = client.get(url).content.decode()
    return " ".join(strip_tags(re.sub(r"</t[dh]>", " ", page)).split())


@pytest.mark.django_db
def test_it_counts_no_further_than_so_many_and_says_so(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks.nothing.using(queue_name="mail").enqueue_many([{}] * 3)
    tasks.nothing.using(queue_name="slow", run_after=timedelta(hours=1)).enqueue_many([{}] * 3)
    for task in ("a", "a", "a", "b"):
        Job.objects.create(task=task, status="DEAD", finished_at=Now())
    for url in (OVERVIEW, QUEUES):
        assert "mail no worker serves it 3 0 0 " in shown(admin_client, url)
        assert "slow no worker serves it 0 0 3 " in shown(admin_client, url)
    assert "Dead letters 4 a 3 b 1" in shown(admin_client, OVERVIEW)
    monkeypatch.setattr(inspection, "MOST_COUNTED", 2)
    for url in (OVERVIEW, QUEUES):
        assert "mail no worker serves it 2+ 0 0+ " in shown(admin_client, url)
        assert "slow no worker serves it 0 0 2+ " in shown(admin_client, url)
    assert "Dead letters 3+ a 2+ b 1" in shown(admin_client, OVERVIEW)
