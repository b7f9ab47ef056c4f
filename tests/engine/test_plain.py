"""The usual job takes a shorter way into the table, and looks there as if it had taken the long one."""

from __future__ import annotations

import gc
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_reliable_jobs import json_faults, task
from django_reliable_jobs.engine import insert, plain, preparing
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.models import Job
from tests import tasks
from tests.factories import IdleWorkerFactory
from tests.rows import in_the_table, values

pytestmark = pytest.mark.django_db


@task()
def given(a: Any = None, b: Any = None) -> None:
    pass


@task()
def strict(a: Any, /, b: Any = None) -> None:
    pass


@pytest.mark.parametrize("function", [given, tasks.nothing])
def test_both_ways_make_the_same_rows(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [{"a": number, "b": [{"text": "ä\"'\\ %s", "float": 0.1}, None, True]} for number in range(1200)]
    with CaptureQueriesContext(connection) as captured:
        short = function.enqueue_many(calls)
    assert any("jsonb_array_elements" in query["sql"] for query in captured.captured_queries)
    monkeypatch.setattr(plain, "is_plain", lambda *_: False)
    long = function.enqueue_many(calls)
    differ = {"id", "created_at", "run_after"}
    for one, other in zip(short, long, strict=True):
        assert values(one) == in_the_table(one)
        assert {name: value for name, value in values(one).items() if name not in differ} == {
            name: value for name, value in values(other).items() if name not in differ
        }
    assert [job.kwargs for job in short] == calls


def test_a_single_job_is_returned_as_it_is_in_the_table() -> None:
    job = given.enqueue(1, b=2)
    assert values(job) == in_the_table(job)
    assert (job.args, job.kwargs, job.created) == ([1], {"b": 2}, True)


def test_each_job_has_arguments_of_its_own() -> None:
    shared = {"a": [1]}
    one, other = given.enqueue_many([shared, shared])
    one.kwargs["a"].append(2)
    one.args.append(3)
    assert (other.args, other.kwargs, shared) == ([], {"a": [1]}, {"a": [1]})


def test_arguments_with_a_default_may_be_left_out() -> None:
    jobs = given.enqueue_many([{}, {"b": 1}, {"a": 1, "b": 2}])
    assert [job.kwargs for job in jobs] == [{}, {"b": 1}, {"a": 1, "b": 2}]


@pytest.mark.parametrize("levels", [1, 2, 50])
def test_what_is_refused_alone_is_refused_among_many(levels: int) -> None:
    def nested(depth: int) -> Any:
        return [nested(depth - 1)] if depth else 1

    fitting = {"a": nested(json_faults.MAX_DEPTH - 1)}
    assert given.enqueue_many([fitting] * 3)[2].kwargs == fitting
    with pytest.raises(InvalidArguments, match=r"calls\[1\]: .* nested"):
        given.enqueue_many([{"a": 1}, {"a": nested(json_faults.MAX_DEPTH - 1 + levels)}])
    with pytest.raises(InvalidArguments, match=r"calls\[2\]: .* the arguments take \d+ bytes"):
        given.enqueue_many([{"a": 1}, {"a": 2}, {"a": "x" * 300_000}])
    with pytest.raises(InvalidArguments, match=r"calls\[1\]: .* did you mean 'b'"):
        given.enqueue_many([{"a": 1}, {"bb": 2}])
    with pytest.raises(InvalidArguments, match=r"calls\[0\]: .*strict"):
        strict.enqueue_many([{"b": 2}])


def test_a_number_that_jsonb_would_change_takes_the_long_way() -> None:
    jobs = given.enqueue_many([{"a": 1e23}, {"a": "1e+23"}])
    assert [in_the_table(job)["kwargs"] for job in jobs] == [{"a": 1e23}, {"a": "1e+23"}]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("many", [False, True])
def test_an_idle_worker_is_notified_once(many: bool) -> None:
    IdleWorkerFactory()
    listener = connection.copy()
    try:
        with listener.cursor() as cursor:
            cursor.execute("LISTEN django_reliable_jobs")
        if many:
            tasks.nothing.enqueue_many([{"a": number} for number in range(700)])
        else:
            tasks.nothing.enqueue(1)
        heard = list(listener.connection.notifies(timeout=60, stop_after=1))
        heard += list(listener.connection.notifies(timeout=0))
        assert [each.payload for each in heard] == ["default"]
    finally:
        listener.close()


def test_a_job_that_is_due_later_is_none_of_these() -> None:
    job = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
    [other] = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue_many([{"a": 1}])
    assert (job.status, other.status) == ("SCHEDULED", "SCHEDULED")


class TestManyStatements:
    """More calls than one statement takes: the next is made while PostgreSQL works on the last."""

    @pytest.fixture(autouse=True, params=["auto", "off"])
    def _few_at_once(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
        settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "PREPARE": request.param}
        monkeypatch.setattr(preparing, "_is_direct", WeakKeyDictionary())
        monkeypatch.setattr(insert, "CHUNK", 3)

    def test_they_come_back_in_their_order(self) -> None:
        jobs = given.enqueue_many([{"a": number} for number in range(10)])
        assert [job.kwargs["a"] for job in jobs] == list(range(10))
        assert [job.pk for job in jobs] == sorted(job.pk for job in jobs)
        assert [values(job) for job in jobs] == [in_the_table(job) for job in jobs]

    @pytest.mark.parametrize("place", [0, 3, 9])
    def test_one_that_is_wrong_undoes_what_was_inserted_before_it(self, place: int) -> None:
        calls: list[dict[str, Any]] = [{"a": number} for number in range(10)]
        calls[place] = {"a": {1}}
        with transaction.atomic():
            with pytest.raises(InvalidArguments, match=rf"calls\[{place}\]: .* a set"):
                given.enqueue_many(calls)
            assert not Job.objects.exists()

    def test_one_that_needs_a_closer_look_is_inserted_as_any(self) -> None:
        calls: list[dict[str, Any]] = [{"a": number} for number in range(10)]
        calls[7] = {"a": 1e23}
        assert [job.kwargs for job in given.enqueue_many(calls)] == calls
        assert Job.objects.count() == 10

    @pytest.mark.parametrize("place", [0, 4, 9])
    def test_one_that_the_database_refuses_is_told_as_django_tells_it(self, place: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE django_reliable_jobs_job ADD CONSTRAINT refused CHECK (kwargs ->> 'a' <> %s) NOT VALID",
                [str(place)],
            )
        with pytest.raises(IntegrityError, match="refused"), transaction.atomic():
            given.enqueue_many([{"a": number} for number in range(10)])
        assert not Job.objects.exists()
        assert given.enqueue_many([{"a": 11}] * 5)[4].pk, "the connection is as it was"

    def test_the_garbage_collector_goes_on_after_an_error(self) -> None:
        with pytest.raises(InvalidArguments):
            given.enqueue_many([{"a": 1}] * 5 + [{"a": object()}])
        assert gc.isenabled()
