"""Enqueue is part of the caller's transaction, and what it returns is what is in the table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from django_reliable_jobs import registry, task
from django_reliable_jobs.engine import enqueue, insert
from django_reliable_jobs.models import Job
from django_reliable_jobs.testing import at, run_jobs
from tests import tasks
from tests.factories import ReadyJobFactory
from tests.rows import in_the_table, values

pytestmark = pytest.mark.django_db
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@task(queue_name="billing", priority=7, max_attempts=3, expires=60, on_dead=tasks.bury, aliases=["old.name"])
def charge(order_id: int, kind: str = "full") -> list[Any]:
    return [order_id, kind]


def test_the_returned_job_is_the_row() -> None:
    for job in (
        tasks.nothing.enqueue(),
        charge.enqueue(1, kind="half"),
        charge.using(run_after=timedelta(hours=1), queue_name="fast", priority=-3).enqueue(1),
        tasks.unique.enqueue("a", value=3),
        *charge.enqueue_many([{"order_id": 1}, {"order_id": 2}]),
        *tasks.unique.enqueue_many([{"key": "b"}, {"key": "c"}]),
    ):
        assert job.created
        assert values(job) == in_the_table(job)
        job.refresh_from_db()


def test_a_job_has_what_its_task_declares() -> None:
    job = charge.enqueue(1, kind="half")
    assert (job.task, job.queue_name, job.priority) == ("tests.engine.test_enqueue.charge", "billing", 7)
    assert (job.args, job.kwargs) == ([1], {"kind": "half"})
    assert (job.max_attempts, job.attempt, job.claims) == (3, 0, 0)
    assert job.expires_at == job.run_after + timedelta(minutes=1)
    assert job.meta == {"on_dead": "tests.tasks.bury"}
    assert (job.status, job.unique_hash) == ("READY", None)


def test_a_task_that_says_nothing_has_the_attempts_of_the_settings() -> None:
    with override_settings(RELIABLE_JOBS={"MAX_ATTEMPTS": 9}):
        assert tasks.nothing.enqueue().max_attempts == 9
        assert charge.enqueue(1).max_attempts == 3


def test_it_is_one_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        charge.enqueue(1)
    with django_assert_num_queries(1):
        tasks.unique.enqueue("a")
    with django_assert_num_queries(1):
        charge.enqueue_many([{"order_id": number} for number in range(insert.CHUNK)])


def test_choices_win_over_the_declaration() -> None:
    job = charge.using(queue_name="fast", priority=0).enqueue(1)
    assert (job.queue_name, job.priority) == ("fast", 0)


def test_a_job_due_later_is_scheduled_and_one_due_now_or_earlier_is_ready() -> None:
    with at(NOON):
        for run_after, status, due in (
            (None, "READY", NOON),
            (timedelta(0), "READY", NOON),
            (timedelta(seconds=1), "SCHEDULED", NOON + timedelta(seconds=1)),
            (timedelta(days=36_500), "SCHEDULED", NOON + timedelta(days=36_500)),
            (NOON, "READY", NOON),
            (NOON + timedelta(microseconds=1), "SCHEDULED", NOON + timedelta(microseconds=1)),
            (NOON - timedelta(hours=1), "READY", NOON - timedelta(hours=1)),
            (datetime(1970, 1, 1, tzinfo=UTC), "READY", datetime(1970, 1, 1, tzinfo=UTC)),
            (datetime(9000, 12, 31, tzinfo=UTC), "SCHEDULED", datetime(9000, 12, 31, tzinfo=UTC)),
        ):
            job = charge.using(run_after=run_after).enqueue(1)
            assert (job.status, job.run_after, job.created_at) == (status, due, NOON)
            assert job.expires_at == due + timedelta(minutes=1)
            assert in_the_table(job)["run_after"] == due
            [same] = charge.using(run_after=run_after).enqueue_many([{"order_id": 1}])
            assert (same.status, same.run_after) == (status, due)


def test_a_span_counts_from_the_statement_and_not_from_the_begin_of_the_transaction() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT now(), pg_sleep(0.05)")
        begin = cursor.fetchone()[0]
    job = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
    assert job.created_at >= begin + timedelta(milliseconds=50)
    assert job.run_after == job.created_at + timedelta(hours=1)


def test_a_row_with_an_old_name_runs_by_an_alias() -> None:
    ReadyJobFactory(task="old.name", args=[3])
    [job] = run_jobs()
    assert (job.status, job.result, job.task) == ("SUCCEEDED", [3, "full"], "old.name")


def test_a_job_of_a_task_that_is_known_by_name_only_has_the_defaults() -> None:
    with override_settings(RELIABLE_JOBS={"MAX_ATTEMPTS": 4}):
        enqueue.insert_plain("default", "nobody.knows", {"job_id": 3})
        enqueue.insert_plain("default", charge, {"order_id": 3})
    unknown, known = Job.objects.order_by("id")
    assert (unknown.task, unknown.kwargs, unknown.queue_name) == ("nobody.knows", {"job_id": 3}, "default")
    assert (unknown.max_attempts, unknown.status, unknown.priority) == (4, "READY", 0)
    assert (known.task, known.queue_name, known.priority, known.max_attempts) == (charge.name, "billing", 7, 3)
    assert registry.find("nobody.knows") is None


def test_the_moment_of_enqueue_is_the_servers() -> None:
    before = timezone.now() - timedelta(minutes=5)
    assert before < tasks.nothing.enqueue().created_at < before + timedelta(minutes=10)
