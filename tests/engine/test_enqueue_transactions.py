"""The job exists if and only if the caller's write does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path

import django_reliable_jobs
from django_reliable_jobs.models import Job
from tests import tasks
from tests.actors import on_stage
from tests.factories import ReadyJobFactory
from tests.models import Effect
from tests.rows import in_the_table, values

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_committed_enqueue_leaves_a_job_and_a_rolled_back_one_leaves_none() -> None:
    for commits in (True, False):
        with transaction.atomic():
            Effect.objects.create(name=f"commits={commits}")
            tasks.effect.enqueue(f"commits={commits}")
            transaction.set_rollback(not commits)
    assert [job.args for job in Job.objects.all()] == [["commits=True"]]
    assert [each.name for each in Effect.objects.all()] == ["commits=True"]


def test_nobody_else_sees_the_job_before_the_commit() -> None:
    with on_stage("caller") as [caller]:
        caller.begins()
        job = caller.does(tasks.effect.enqueue, "a")
        assert not Job.objects.exists()
        caller.commits()
        assert Job.objects.get() == job


def test_a_rolled_back_savepoint_takes_its_job_with_it_and_leaves_the_others() -> None:
    with transaction.atomic():
        tasks.effect.enqueue("before")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            tasks.effect.enqueue("inside")
            tasks.effect.enqueue_many([{"name": "inside"}])
            tasks.unique.enqueue("inside")
            _ = 1 / 0
        tasks.effect.enqueue("after")
        tasks.unique.enqueue("inside")
    assert [job.args for job in Job.objects.order_by("id")] == [["before"], ["after"], ["inside"]]


@pytest.mark.parametrize("savepoint", [True, False])
def test_an_outer_rollback_takes_the_jobs_of_committed_inner_blocks(savepoint: bool) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        with transaction.atomic(savepoint=savepoint):
            tasks.effect.enqueue("inside")
        _ = 1 / 0
    assert not Job.objects.exists()


def test_an_error_of_the_database_after_the_enqueue_takes_the_job() -> None:
    ReadyJobFactory(pk=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        tasks.effect.enqueue("a")
        Job.objects.create(pk=1, task="another with the same id")
    assert Job.objects.count() == 1


def test_in_autocommit_the_job_exists_at_once() -> None:
    job = tasks.effect.enqueue("a")
    many = tasks.effect.enqueue_many([{"name": "b"}])
    unique = tasks.unique.enqueue("c")
    with on_stage("another") as [another]:
        assert another.does(lambda: set(Job.objects.all())) == {job, *many, unique}


def order_view(request: HttpRequest) -> HttpResponse:
    Effect.objects.create(name="order")
    tasks.effect.enqueue("a")
    tasks.effect.enqueue_many([{"name": "b"}])
    if "fail" in request.GET:
        raise RuntimeError("the view failed")
    return HttpResponse("placed")


urlpatterns = [path("order", order_view)]


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(("query", "status", "count"), [("", 200, 2), ("?fail", 500, 0)])
def test_with_atomic_requests_the_jobs_exist_if_the_view_succeeds(
    client: Any, monkeypatch: pytest.MonkeyPatch, query: str, status: int, count: int
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    client.raise_request_exception = False
    assert client.get(f"/order{query}").status_code == status
    assert Job.objects.count() == count
    assert Effect.objects.count() == (1 if count else 0)


def test_the_package_waits_for_no_commit_hook() -> None:
    sources = list(Path(django_reliable_jobs.__file__).parent.rglob("*.py"))
    assert len(sources) > 30
    assert [str(each) for each in sources if re.search(r"\bon_commit\b", each.read_text())] == []


def test_it_can_be_awaited() -> None:
    job = async_to_sync(tasks.effect.aenqueue)("a")
    other = async_to_sync(tasks.effect.using(priority=3).aenqueue)(name="b")
    assert [(each.args, each.kwargs, each.priority) for each in Job.objects.order_by("id")] == [
        (["a"], {}, 0),
        ([], {"name": "b"}, 3),
    ]
    assert values(job) == in_the_table(job)
    assert values(other) == in_the_table(other)


def test_awaiting_takes_part_in_the_transaction_of_the_synchronous_caller() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        async_to_sync(tasks.effect.aenqueue)("a")
        assert Job.objects.count() == 1
        _ = 1 / 0
    assert not Job.objects.exists()


# Another database


def test_the_database_that_was_chosen_decides_whose_transaction_it_is(jobs_database: str) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        tasks.effect.using(database="jobs").enqueue("a")
        tasks.effect.using(database="jobs").enqueue_many([{"name": "b"}])
        tasks.unique.using(database="jobs").enqueue("c")
        tasks.unique.using(database="jobs").enqueue("c")
        tasks.effect.enqueue("default")
        _ = 1 / 0
    assert [job.args or job.kwargs for job in Job.objects.order_by("id")] == [["a"], {"name": "b"}, ["c"]]
    with pytest.raises(ZeroDivisionError), transaction.atomic(using="jobs"):
        job = tasks.effect.using(database="jobs").enqueue("d")
        assert job._state.db == "jobs"
        _ = 1 / 0
    assert Job.objects.count() == 3


def test_the_router_decides_where_nothing_is_chosen(jobs_database: str) -> None:
    with (
        override_settings(DATABASE_ROUTERS=["tests.edges.test_checks.JobsElsewhere"]),
        pytest.raises(ZeroDivisionError),
        transaction.atomic(using="jobs"),
    ):
        assert tasks.effect.enqueue("a")._state.db == "jobs"
        [job] = tasks.effect.enqueue_many([{"name": "b"}])
        assert job._state.db == "jobs"
        _ = 1 / 0
    assert not Job.objects.exists()
