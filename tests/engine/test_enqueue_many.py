"""Many jobs in one call: in order, all or none, in few round trips."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from django.db import IntegrityError, connection

from django_reliable_jobs.engine import insert
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.models import Job
from tests import tasks
from tests.rows import in_the_table, values

pytestmark = pytest.mark.django_db


def test_ids_are_in_the_order_of_the_calls() -> None:
    for function in (tasks.effect, tasks.unique):
        key = "name" if function is tasks.effect else "key"
        names = [f"{number * 7919 % 1000}" for number in range(1000)]
        jobs = function.enqueue_many([{key: name} for name in names])
        assert [job.kwargs[key] for job in jobs] == names
        assert [job.pk for job in jobs] == sorted(job.pk for job in jobs)


@pytest.mark.parametrize("function", [tasks.effect, tasks.unique])
def test_ids_are_in_the_order_of_the_calls_across_chunks(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "CHUNK", 3)
    key = "name" if function is tasks.effect else "key"
    jobs = function.enqueue_many([{key: str(number)} for number in range(10)])
    assert [job.kwargs[key] for job in jobs] == [str(number) for number in range(10)]
    assert [job.pk for job in jobs] == sorted({job.pk for job in jobs})
    assert [values(job) for job in jobs] == [in_the_table(job) for job in jobs]


def test_twenty_thousand_rows_take_few_round_trips(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(6):
        jobs = tasks.effect.enqueue_many({"name": str(number)} for number in range(20_000))
    assert Job.objects.count() == len(jobs) == 20_000
    with django_assert_num_queries(5):
        unique = tasks.unique.enqueue_many({"key": str(number)} for number in range(20_000))
    assert [job.created for job in unique] == [True] * 20_000
    with django_assert_num_queries(9):
        again = tasks.unique.enqueue_many({"key": str(number)} for number in range(20_000))
    assert [job.created for job in again] == [False] * 20_000
    assert again == unique


@pytest.mark.parametrize(("function", "statements"), [(tasks.effect, 3), (tasks.unique, 4)])
def test_large_arguments_are_spread_over_statements(
    function: Any, statements: int, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(insert, "CHUNK_BYTES", 500)
    key = "name" if function is tasks.effect else "key"
    names = [str(number) * size for number, size in enumerate((100, 100, 100, 1000, 1, 1), start=1)]
    with django_assert_num_queries(statements):
        jobs = function.enqueue_many([{key: name} for name in names])
    assert [job.kwargs[key] for job in jobs] == names


def test_no_calls_make_no_jobs_and_no_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert tasks.effect.enqueue_many([]) == tasks.unique.enqueue_many(iter(())) == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"name": date(2030, 1, 1)}, r"calls\[2\]: tests\.tasks\.effect: name is a date"),
        ({"nam": "x"}, r"calls\[2\]: tests\.tasks\.effect\(name\): there is no argument 'nam', did you mean 'name'"),
        ({}, r"calls\[2\]: tests\.tasks\.effect\(name\): missing a required argument: 'name'"),
        ({1: 2}, r"calls\[2\]: tests\.tasks\.effect\(name\): there is no argument 1"),
        ("name", r"enqueue_many takes a dict of keyword arguments per job, not 'name'"),
        (("x",), r"enqueue_many takes a dict of keyword arguments per job, not \('x',\)"),
    ],
)
def test_a_bad_call_in_the_middle_inserts_nothing_and_is_named(bad: Any, reason: str) -> None:
    with pytest.raises(InvalidArguments, match=reason):
        tasks.effect.enqueue_many([{"name": "a"}, {"name": "b"}, bad, {"name": "d"}])
    assert not Job.objects.exists(), "and the transaction is usable"


def test_one_dict_is_not_a_list_of_calls() -> None:
    with pytest.raises(InvalidArguments, match="takes a dict of keyword arguments per job, not 'name'"):
        tasks.effect.enqueue_many({"name": "a"})  # type: ignore[arg-type]


@pytest.fixture
def refuse_bad_jobs(transactional_db: None) -> Iterator[None]:
    """Let the database refuse jobs whose argument is `bad`."""
    with connection.cursor() as cursor:
        cursor.execute(
            'ALTER TABLE django_reliable_jobs_job ADD CONSTRAINT no_bad_jobs CHECK (kwargs <> \'{"name": "bad"}\')'
        )
        yield
        cursor.execute("ALTER TABLE django_reliable_jobs_job DROP CONSTRAINT no_bad_jobs")


def test_in_autocommit_many_are_all_or_nothing(refuse_bad_jobs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "CHUNK", 2)
    with pytest.raises(IntegrityError):
        tasks.effect.enqueue_many([{"name": name} for name in ("a", "b", "c", "bad", "d")])
    assert not Job.objects.exists()
