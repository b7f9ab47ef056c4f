"""What is rare among millions is on the first page of the list, and each job is on one page, whatever moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from django_reliable_jobs.admin import job_paging
from django_reliable_jobs.admin.jobs import JobAdmin
from django_reliable_jobs.engine import rare_jobs
from django_reliable_jobs.models import Job
from tests import tasks
from tests.edges.test_admin import listed
from tests.edges.test_admin_job_list import JOBS, links
from tests.states import an_ended_job as ended

RARE = ["?queue=rare", "?task=rare.task", "?q=rare", "?q=task", "?status=CANCELLED", "?status=CANCELLED&queue=rare"]


@pytest.mark.django_db
class TestRareJobs:
    """Where a page looks at three jobs, what is rare is on the first page all the same."""

    @pytest.fixture(autouse=True)
    def three_are_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(job_paging, "LOOKED_AT", 3)

    @pytest.mark.parametrize("query", [*RARE, "?schedule=7", "?schedule=7&queue=rare&period=24h"])
    def test_they_are_found_at_once_and_counted(self, admin_client: Client, query: str) -> None:
        rare = [ended(task="rare.task", queue_name="rare", status="CANCELLED", schedule_id=7).pk for _ in range(2)]
        for _ in range(7):
            ended()
        assert listed(admin_client, query) == rare[::-1]
        assert ">2 jobs<" in admin_client.get(JOBS + query).content.decode()
        assert links(admin_client, query) == {}

    @pytest.mark.parametrize("status", Job.LIVE)
    def test_so_are_those_that_live(self, admin_client: Client, status: str) -> None:
        columns = {"token": 1, "worker_id": 1, "started_at": Now(), "status": status}
        live = Job.objects.create(task="rare.task", queue_name="rare", **columns)
        for _ in range(7):
            ended()
        for query in (*RARE[:4], f"?status={status}", f"?status={status}&task=rare.task"):
            assert listed(admin_client, query) == [live.pk], query
        assert listed(admin_client, "?status=DEAD&task=rare.task") == []

    def test_what_no_index_knows_narrows_them_down(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(JobAdmin, "list_per_page", 1)
        rare = [ended(task="rare.task", schedule_id=7, worker_id=worker).pk for worker in (1, 2, 2, 1)]
        for query in ("?task=rare.task", "?schedule=7"):
            query += "&worker=2&period=24h"
            assert listed(admin_client, query) == [rare[2]]
            assert ">2 jobs<" in admin_client.get(JOBS + query).content.decode()
            older = links(admin_client, query)["Older"]
            assert listed(admin_client, older) == [rare[1]]
            assert "Older" not in links(admin_client, older)

    def test_more_than_few_are_looked_for_where_they_are(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rare_jobs, "FEW", 1)
        age = timezone.now() - timedelta(days=1)
        old = [ended(task="old.task", schedule_id=7, created_at=age, finished_at=age).pk for _ in range(2)]
        for _ in range(7):
            ended()
        for query in ("?task=old.task", "?q=old", "?schedule=7"):
            assert listed(admin_client, query) == old[::-1], query
        with monkeypatch.context() as changed:
            changed.setattr(rare_jobs, "MOST_LIVE", 1)
            waiting = [Job.objects.create(task="x").pk for _ in range(2)]
            page = admin_client.get(f"{JOBS}?task=old.task")
            assert [job.pk for job in page.context["cl"].result_list] == old[::-1]
            assert "not all were looked at" in page.content.decode()
            Job.objects.filter(pk__in=waiting).delete()
        live = Job.objects.create(task="old.task", schedule_id=7).pk
        assert listed(admin_client, "?task=old.task") == listed(admin_client, "?schedule=7") == [live]

    def test_where_there_are_too_many_kinds_a_page_looks_at_the_newest(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("rare.task", "x", "y", "z", "z"):
            ended(task=name)
        assert len(listed(admin_client, "?task=rare.task")) == 1
        monkeypatch.setattr(rare_jobs, "MOST_KINDS", 3)
        assert listed(admin_client, "?task=rare.task") == []
        assert "Look further back" in links(admin_client, "?task=rare.task")

    @pytest.mark.parametrize("columns", [{"queue_name": "mail"}, {"rate_key": "a"}, {"status": "SCHEDULED"}])
    def test_where_too_many_wait_those_that_ended_are_shown_and_that_others_may_wait_is_told(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch, columns: dict[str, str]
    ) -> None:
        monkeypatch.setattr(rare_jobs, "MOST_LIVE", 4)
        dead = ended(task="rare.task", status="DEAD").pk
        late = {"run_after": timezone.now() + timedelta(days=1), "queue_name": "z"}
        last = Job.objects.create(**{"task": "rare.task", **columns, **late})
        for _ in range(3):
            Job.objects.create(task="x", **columns)
        told = "Of the jobs that wait, not all were looked at"
        page = admin_client.get(f"{JOBS}?task=rare.task")
        assert listed(admin_client, "?task=rare.task") == [last.pk, dead]
        assert ">2 jobs<" in page.content.decode() and told not in page.content.decode()
        for _ in range(2):
            Job.objects.create(task="x", **columns)
        page = admin_client.get(f"{JOBS}?task=rare.task")
        assert listed(admin_client, "?task=rare.task") == [dead]
        assert ">1+ job<" in page.content.decode() and told in page.content.decode()
        status = last.status or "READY"
        assert listed(admin_client, f"?task=rare.task&status={status}") == []
        assert "Look further back" in links(admin_client, f"?task=rare.task&status={status}")
        assert listed(admin_client, "?task=rare.task&status=DEAD") == [dead]
        assert listed(admin_client, "?task=rare.task&status=RUNNING") == []
        assert links(admin_client, "?task=rare.task&status=RUNNING") == {}


@pytest.mark.django_db
class TestPagesWhileJobsMove:
    @pytest.fixture(autouse=True)
    def two_on_a_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(JobAdmin, "list_per_page", 2)

    @pytest.mark.parametrize("few", [rare_jobs.FEW, 1])
    @pytest.mark.parametrize("query", ["?", "?task=tests.tasks.nothing", "?queue=default", "?q=nothing", "?period=1h"])
    def test_each_is_listed_once_whatever_becomes_of_it(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch, query: str, few: int
    ) -> None:
        monkeypatch.setattr(rare_jobs, "FEW", few)
        ids = [job.pk for job in tasks.nothing.enqueue_many([{}] * 7)]
        seen, moves = list[int](), iter(["RUNNING", "SUCCEEDED", "SCHEDULED", "CANCELLED"])
        while query:
            seen += listed(admin_client, query)
            query = links(admin_client, query).get("Older", "")
            status = next(moves)
            columns = {"token": 1, "worker_id": 1, "started_at": Now(), "status": status}
            Job.objects.filter(pk__in=ids).update(finished_at=Now() if status in Job.ENDED else None, **columns)
        assert seen == ids[::-1]

    def test_one_that_leaves_the_status_takes_no_other_along(self, admin_client: Client) -> None:
        ids = [job.pk for job in tasks.nothing.enqueue_many([{}] * 5)]
        older = links(admin_client, "?status=READY")["Older"]
        Job.objects.filter(pk__in=[ids[4], ids[2]]).update(status="SCHEDULED")
        assert listed(admin_client, older) == [ids[1], ids[0]]
        assert listed(admin_client, "?status=READY") == [ids[3], ids[1]]

    def test_one_that_moves_on_while_the_page_is_made_does_not_end_the_list(self, admin_client: Client) -> None:
        ids = [job.pk for job in tasks.nothing.enqueue_many([{}] * 5)]

        def move(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            if '"django_reliable_jobs_job"."id" IN (' in sql:
                with connection.connection.cursor() as cursor:
                    cursor.execute("UPDATE django_reliable_jobs_job SET status = 'WAITING' WHERE id = %s", [ids[4]])
            return execute(sql, params, many, context)

        with connection.execute_wrapper(move):
            response = admin_client.get(f"{JOBS}?status=READY")
        assert [job.pk for job in response.context["cl"].result_list] == [ids[3]]
        assert f"before={ids[3]}" in response.content.decode()
        assert listed(admin_client, f"?status=READY&before={ids[3]}") == [ids[2], ids[1]]


@pytest.mark.django_db
@pytest.mark.parametrize("narrower", ["", "&period=24h"])
def test_an_act_on_all_that_match_counts_and_finds_the_rare_ones_in_a_state_for_it(
    admin_client: Client, narrower: str
) -> None:
    rare = [ended(task="rare.task", status=status).pk for status in ("DEAD", "CANCELLED", "DEAD")]
    for other in ({"task": "rare.task", "status": "READY", "finished_at": None}, {"status": "DEAD"}):
        ended(**other)
    data = {"action": "delete_jobs", "select_across": "1", "_selected_action": [0]}
    address = f"{JOBS}?task=rare.task{narrower}"
    asked = admin_client.post(address, data).content.decode()
    assert "about 3 jobs" in asked, asked
    assert all(f"#{each}" in asked for each in rare)
    admin_client.post(address, {**data, "confirmed": "yes"})
    assert not Job.objects.filter(pk__in=rare).exists() and Job.objects.count() == 2
