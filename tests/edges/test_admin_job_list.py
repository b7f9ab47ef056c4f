"""The list of jobs holds for millions: pages by id, estimates instead of counts, filters from small tables."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_reliable_jobs.admin import job_paging
from django_reliable_jobs.admin.jobs import JobAdmin
from django_reliable_jobs.engine.inspection import WIDE_COLUMNS
from django_reliable_jobs.models import Job
from tests import tasks
from tests.edges.test_admin import PAGES, listed
from tests.schedules import a_schedule
from tests.states import a_running_job, an_ended_job

JOBS = f"{PAGES}job/"


def links(client: Client, query: str = "") -> dict[str, str]:
    """The links below the list, by their words."""
    page = client.get(JOBS + query).content.decode()
    footer = page[page.index('class="paginator"') :]
    found = re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', footer[: footer.index("</p>")])
    return {
        text.replace("&laquo;", "").replace("&raquo;", "").strip(): url.replace("&amp;", "&") for url, text in found
    }


@pytest.mark.django_db
class TestPages:
    @pytest.fixture(autouse=True)
    def two_on_a_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(JobAdmin, "list_per_page", 2)

    def test_each_begins_behind_the_last(self, admin_client: Client) -> None:
        ids = [job.pk for job in tasks.nothing.enqueue_many([{}] * 5)]
        seen, query = [], ""
        while True:
            seen.append(listed(admin_client, query))
            if "Older" not in links(admin_client, query):
                break
            query = links(admin_client, query)["Older"]
        assert seen == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]
        assert links(admin_client, query) == {"Newest": "?"}

    def test_a_page_stays_as_it_is_when_newer_jobs_come(self, admin_client: Client) -> None:
        tasks.nothing.enqueue_many([{}] * 5)
        second = links(admin_client)["Older"]
        before = listed(admin_client, second)
        tasks.nothing.enqueue_many([{}] * 3)
        assert listed(admin_client, second) == before

    def test_filters_go_along_and_a_new_one_begins_with_the_newest(self, admin_client: Client) -> None:
        tasks.nothing.enqueue_many([{}] * 5)
        older = links(admin_client, "?status=READY")["Older"]
        assert "status=READY" in older
        page = admin_client.get(JOBS + older).content.decode()
        assert "?status=DEAD" in page
        assert not re.search(r"status=DEAD[^\"]*before|before=[^\"]*status=DEAD", page)
        assert 'name="before"' not in page

    @pytest.mark.parametrize("before", ["x", "-1", "9" * 50, "²", ""])
    def test_a_place_that_there_is_not_is_the_beginning(self, admin_client: Client, before: str) -> None:
        job = tasks.nothing.enqueue()
        assert listed(admin_client, f"?before={before}") == [job.pk]

    def test_what_no_index_knows_is_looked_for_so_far_and_then_further(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_paging, "LOOKED_AT", 3)
        wanted = an_ended_job(worker_id=9)
        tasks.nothing.enqueue_many([{}] * 7)
        query, pages = "?worker=9&period=24h", 0
        while not (found := listed(admin_client, query)):
            query, pages = links(admin_client, query)["Look further back"], pages + 1
        assert (found, pages) == ([wanted.pk], 2)
        assert "Look further back" not in links(admin_client, query)

    def test_ids_that_were_passed_over_are_not_looked_at(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_paging, "LOOKED_AT", 3)
        wanted = an_ended_job(worker_id=9)
        Job.objects.create(pk=wanted.pk + 10**9, task="x")
        query = "?worker=9&period=24h"
        assert listed(admin_client, query) == []
        assert listed(admin_client, links(admin_client, query)["Look further back"]) == [wanted.pk]
        assert listed(admin_client, f"{query}&before={10**17}") == []
        assert listed(admin_client, links(admin_client, f"{query}&before={10**17}")["Look further back"]) == [wanted.pk]

    def test_nothing_is_looked_for_before_the_period(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_paging, "LOOKED_AT", 3)
        for _ in range(5):
            an_ended_job(worker_id=9, created_at=timezone.now() - timedelta(days=3))
        tasks.nothing.enqueue_many([{}] * 2)
        assert "Look further back" not in links(admin_client, "?worker=9&period=24h")
        assert "Look further back" in links(admin_client, "?worker=8&period=7d")

    def test_a_whole_list_is_counted_and_a_long_one_is_estimated(self, admin_client: Client) -> None:
        tasks.nothing.enqueue_many([{}] * 2)
        assert ">2 jobs<" in admin_client.get(JOBS).content.decode()
        tasks.nothing.enqueue_many([{}] * 2000)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE django_reliable_jobs_job")
        assert ">about 2,000 jobs<" in admin_client.get(JOBS).content.decode()


@pytest.mark.django_db
class TestFilters:
    def test_by_queue_task_and_schedule(self, admin_client: Client) -> None:
        schedule = a_schedule()
        one = tasks.nothing.using(queue_name="mail").enqueue()
        two = tasks.fails.enqueue()
        Job.objects.filter(pk=two.pk).update(schedule_id=schedule.pk)
        assert listed(admin_client, "?queue=mail") == [one.pk]
        assert listed(admin_client, "?task=tests.tasks.fails") == [two.pk]
        assert listed(admin_client, f"?schedule={schedule.pk}") == [two.pk]
        assert listed(admin_client, f"?schedule={schedule.pk}&queue=mail") == []

    @pytest.mark.parametrize("query", ["?schedule=x", "?worker=x", "?worker=--1", f"?schedule={2**63}"])
    def test_what_is_no_id_finds_nothing(self, admin_client: Client, query: str) -> None:
        tasks.nothing.enqueue()
        assert listed(admin_client, query) == []

    def test_what_is_not_known_here_can_be_asked_for(self, admin_client: Client) -> None:
        job = Job.objects.create(task="gone.away", queue_name="elsewhere")
        assert listed(admin_client, "?task=gone.away") == listed(admin_client, "?queue=elsewhere") == [job.pk]
        assert "gone.away" in admin_client.get(f"{JOBS}?task=gone.away").content.decode()

    def test_by_worker_what_runs_and_with_a_period_what_has_ended(self, admin_client: Client) -> None:
        running = a_running_job()
        running.refresh_from_db()
        ended = Job.objects.create(task="x", status="SUCCEEDED", finished_at=Now(), worker_id=running.worker_id)
        Job.objects.create(task="x", worker_id=1)
        assert listed(admin_client, f"?worker={running.worker_id}") == [running.pk]
        assert listed(admin_client, f"?worker={running.worker_id}&period=24h") == [ended.pk, running.pk]

    def test_by_period(self, admin_client: Client) -> None:
        ages = [timedelta(days=40), timedelta(days=8), timedelta(hours=30), timedelta(hours=2), timedelta(minutes=5)]
        jobs = [Job.objects.create(task="x", created_at=timezone.now() - age).pk for age in ages]
        for period, count in (("1h", 1), ("24h", 2), ("7d", 3), ("30d", 4)):
            assert listed(admin_client, f"?period={period}") == jobs[::-1][:count], period
        assert listed(admin_client, "?period=x") == jobs[::-1]

    def test_a_period_without_any_job_is_empty(self, admin_client: Client) -> None:
        assert listed(admin_client, "?period=1h") == []
        Job.objects.create(task="x", created_at=timezone.now() - timedelta(days=1))
        assert listed(admin_client, "?period=1h") == []

    def test_a_unique_key_finds_the_live_job(self, admin_client: Client) -> None:
        by_argument = tasks.unique.enqueue("order-7")
        by_text = tasks.nothing.using(unique_key="order-42").enqueue()
        Job.objects.create(task="x")
        assert listed(admin_client, "?q=key=order-7") == listed(admin_client, '?q=key="order-7"') == [by_argument.pk]
        assert listed(admin_client, "?q=order-42") == [by_text.pk]
        Job.objects.filter(pk=by_text.pk).update(status="SUCCEEDED", finished_at=Now())
        assert listed(admin_client, "?q=order-42") == []


QUERIES = [
    "",
    "?status=SUCCEEDED",
    "?queue=default",
    "?period=24h",
    "?q=tests",
    "?worker=1&period=7d",
    "?task=x&status=DEAD",
]


@pytest.mark.django_db
@pytest.mark.parametrize("query", QUERIES)
def test_it_takes_as_many_statements_for_many_jobs_as_for_one(admin_client: Client, query: str) -> None:
    numbers = []
    tasks.nothing.enqueue()
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            admin_client.get(JOBS + query)
        numbers.append(len(captured))
        tasks.nothing.enqueue_many([{}] * 40)
    # Three of them begin and end its transaction, a savepoint here.
    assert numbers[0] == numbers[1] <= 13, [each["sql"] for each in captured]


@pytest.mark.django_db
@pytest.mark.parametrize("query", QUERIES)
def test_it_counts_nothing_and_reads_no_wide_column(admin_client: Client, query: str) -> None:
    tasks.nothing.enqueue_many([{}] * 60)
    with CaptureQueriesContext(connection) as captured:
        admin_client.get(JOBS + query)
    statements = [each["sql"] for each in captured if "django_reliable_jobs_job" in each["sql"]]
    for sql in statements:
        assert "COUNT" not in sql.upper() and "DISTINCT" not in sql
        assert not any(f'"{column}"' in sql for column in WIDE_COLUMNS), sql
