"""Duplicates in one call of `enqueue_many`: among its calls, and with jobs that are there already."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_reliable_jobs.engine import insert
from django_reliable_jobs.exceptions import DuplicateJob
from django_reliable_jobs.models import Job
from tests import tasks
from tests.engine.test_unique import bring_to, keeps, of_none, postpones, raises, replaces
from tests.rows import in_the_table, values

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True, params=[2, 5000], ids=["small chunks", "one chunk"])
def _chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "CHUNK", request.param)


def calls(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"order_id": order_id, "kind": kind} for order_id, kind in pairs]


def kinds(jobs: list[Job]) -> list[str]:
    return [job.kwargs["kind"] for job in jobs]


def test_each_call_hears_whether_it_made_its_job() -> None:
    there = keeps.enqueue(2)
    jobs = keeps.enqueue_many(calls((1, "a"), (2, "b"), (3, "c"), (1, "d"), (4, "e"), (2, "f")))
    assert [job.created for job in jobs] == [True, False, True, False, True, False]
    assert jobs[1] == jobs[5] == there
    assert jobs[0] == jobs[3]
    assert jobs[0].pk < jobs[2].pk < jobs[4].pk
    assert [values(job) for job in jobs] == [in_the_table(job) for job in jobs]
    assert Job.objects.count() == 4


@pytest.mark.parametrize("function", [keeps, postpones])
def test_the_first_of_several_calls_counts(function: Any) -> None:
    jobs = function.enqueue_many(calls((1, "a"), (2, "b"), (1, "c"), (1, "d")))
    assert kinds(jobs) == ["a", "b", "a", "a"]
    assert [job.created for job in jobs] == [True, True, False, False]


def test_with_replace_the_last_of_several_calls_counts() -> None:
    there = replaces.enqueue(3, "old")
    jobs = replaces.enqueue_many(calls((1, "a"), (2, "b"), (1, "c"), (3, "d"), (3, "e")))
    assert kinds(jobs) == ["c", "b", "c", "e", "e"]
    assert [job.created for job in jobs] == [True, True, False, False, False]
    assert jobs[3] == jobs[4] == there
    assert jobs[0].pk < jobs[1].pk
    assert [values(job) for job in jobs] == [in_the_table(job) for job in jobs]


def test_postpone_moves_those_that_have_not_started() -> None:
    waiting, running = postpones.enqueue(1), bring_to(postpones.enqueue(2), "RUNNING")
    before = in_the_table(running)
    jobs = postpones.using(run_after=timedelta(hours=1)).enqueue_many(calls((1, "a"), (2, "b"), (3, "c")))
    assert [job.status for job in jobs] == ["SCHEDULED", "RUNNING", "SCHEDULED"]
    assert jobs[:2] == [waiting, running]
    assert in_the_table(running) == before
    assert [values(job) for job in jobs] == [in_the_table(job) for job in jobs]


def test_raise_undoes_the_call_and_leaves_the_transaction_usable() -> None:
    there = raises.enqueue(4)
    with transaction.atomic():
        keeps.enqueue(1)
        with pytest.raises(DuplicateJob, match=rf"job {there.pk} of task .*raises holds the same unique key") as caught:
            raises.enqueue_many(calls((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")))
        assert caught.value.job == there
        assert raises.enqueue(5).created
    assert Job.objects.count() == 3


def test_raise_names_two_calls_with_one_key_and_inserts_nothing() -> None:
    with pytest.raises(DuplicateJob, match=r"raises: calls\[1\] and calls\[3\] have the same unique key") as caught:
        raises.enqueue_many(calls((1, "a"), (2, "b"), (3, "c"), (2, "d")))
    assert caught.value.job is None
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_raise_in_autocommit_undoes_the_call() -> None:
    raises.enqueue(4)
    with pytest.raises(DuplicateJob):
        raises.enqueue_many(calls((1, "a"), (2, "b"), (3, "c"), (4, "d")))
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    "make", [lambda: of_none.enqueue_many([{}, {}]), lambda: tasks.nothing.using(unique_key="x").enqueue_many([{}, {}])]
)
def test_calls_that_share_one_key_make_one_job(make: Callable[[], list[Job]]) -> None:
    one, other = make()
    assert (one, one.created, other.created) == (other, True, False)
    assert Job.objects.count() == 1


def test_duplicates_take_one_statement_per_chunk_and_their_treatment_another(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(insert, "CHUNK", 50)
    keeps.enqueue_many(calls(*((number, "a") for number in range(0, 100, 2))))
    with django_assert_num_queries(1 + 2 + 1):
        keeps.enqueue_many(calls(*((number, "b") for number in range(100))))
    replaces.enqueue_many(calls(*((number, "a") for number in range(0, 100, 2))))
    with django_assert_num_queries(1 + 2 + 1 + 1):
        jobs = replaces.enqueue_many(calls(*((number, "b") for number in range(100))))
    assert kinds(jobs) == ["b"] * 100
