"""`run_jobs()` ends jobs as a worker does, inside a TestCase and outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import Task
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.recorded import run_jobs
from tests.workers import WorkerProcess

# What an atomic task comes to that goes on after a failed statement.
ENDS = {"sql": "DEAD", "orm": "DEAD", "own block": "SUCCEEDED"}
every_way = pytest.mark.parametrize("how", ENDS)


def assert_ended_as_it_must(job: Job, how: str) -> None:
    job.refresh_from_db()
    assert job.status == ENDS[how]
    if job.status == "DEAD":
        assert "transaction" in (job.reason or ""), "it says what is spoiled"
    assert Effect.objects.count() == (job.status == "SUCCEEDED")
    tasks.effect.enqueue("after")


@pytest.mark.django_db
@every_way
def test_in_a_test_case_an_atomic_task_that_swallows_a_failure_ends_as_in_production(how: str) -> None:
    job = interrupted_tasks.swallows_a_failure.enqueue(how)
    run_jobs()
    assert_ended_as_it_must(job, how)


@pytest.mark.django_db(transaction=True)
@every_way
def test_outside_a_test_case_it_does_so_too(how: str) -> None:
    job = interrupted_tasks.swallows_a_failure.enqueue(how)
    run_jobs()
    assert_ended_as_it_must(job, how)


@every_way
def test_and_so_it_does_in_production(start_worker: Callable[..., WorkerProcess], how: str) -> None:
    job = interrupted_tasks.swallows_a_failure.enqueue(how)
    start_worker("--burst", ready=False)
    wait_for(lambda: Job.objects.get(pk=job.pk).has_ended, what="its end")
    assert_ended_as_it_must(job, how)


@pytest.mark.django_db
@pytest.mark.parametrize("task", [interrupted_tasks.in_parts, interrupted_tasks.atomic_effect])
def test_a_job_leaves_the_test_s_transaction_free_to_sit_idle(task: Task[..., Any]) -> None:
    task.enqueue("name")
    [job] = run_jobs()
    assert job.status == "SUCCEEDED"
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("0",)
