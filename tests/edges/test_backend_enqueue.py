"""ReliableBackend: enqueue through Django's Tasks framework."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from django.utils import timezone

pytest.importorskip("django_reliable_jobs.tasks_framework", exc_type=ImportError)

from django_reliable_jobs.backend import ReliableBackend
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.models import Job
from django_reliable_jobs.tasks_framework import (
    InvalidTask,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from tests import framework_tasks as tasks

pytestmark = pytest.mark.django_db
BACKEND = "django_reliable_jobs.backend.ReliableBackend"


@pytest.fixture
def enqueued() -> Iterator[list[tuple[Any, Any]]]:
    """What the signal told: sender and result."""
    told: list[tuple[Any, Any]] = []

    def listen(sender: Any, task_result: Any, **_: Any) -> None:
        told.append((sender, task_result))

    task_enqueued.connect(listen)
    yield told
    task_enqueued.disconnect(listen)


def seen_by_others() -> int:
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM django_reliable_jobs_job")
            count: int = cursor.fetchone()[0]
            return count
    finally:
        other.close()


@pytest.mark.parametrize("name", ["nothing", "nothing_async"])
def test_the_result_of_enqueue_is_that_of_a_task_that_waits(
    name: str, enqueued: list[Any], django_assert_num_queries: Any
) -> None:
    task = getattr(tasks, name)
    with django_assert_num_queries(1):
        result = task.enqueue(1, two=3)
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.args, result.kwargs, result.task, result.backend) == ([1], {"two": 3}, task, "default")
    assert (result.errors, result.worker_ids) == ([], [])
    assert isinstance(result.id, str) and len(result.id) <= 64
    assert timezone.now() - result.enqueued_at < timedelta(minutes=1)
    with pytest.raises(ValueError, match="Task has not finished yet"):
        result.return_value  # noqa: B018
    assert enqueued == [(ReliableBackend, result)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["nothing", "nothing_async"])
def test_a_coroutine_enqueues(name: str, enqueued: list[Any]) -> None:
    result = async_to_sync(getattr(tasks, name).aenqueue)(1, two=3)
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"two": 3})
    assert enqueued == [(ReliableBackend, result)]
    assert Job.objects.get().pk == int(result.id)


def test_the_job_is_one_of_ours() -> None:
    result = tasks.effect.enqueue("a")
    job = Job.objects.get(pk=result.id)
    assert (job.task, job.queue_name, job.priority) == ("tests.framework_tasks.effect", "mail", 7)
    assert (job.args, job.kwargs, job.status, job.max_attempts) == (["a"], {}, "READY", 1)


def test_using_places_the_job() -> None:
    due = datetime(2040, 1, 1, tzinfo=UTC)
    result = tasks.effect.using(priority=-5, queue_name="slow", run_after=due).enqueue(name="a")
    job = Job.objects.get(pk=result.id)
    assert (job.priority, job.queue_name, job.run_after, job.status) == (-5, "slow", due, "SCHEDULED")
    assert result.status == TaskResultStatus.READY
    assert (result.task.priority, result.task.queue_name, result.task.run_after) == (-5, "slow", due)


@pytest.mark.django_db(transaction=True)
def test_the_job_is_part_of_the_callers_transaction() -> None:
    with transaction.atomic():
        assert tasks.nothing.enqueue().enqueued_at is not None
        assert (Job.objects.count(), seen_by_others()) == (1, 0)
    assert seen_by_others() == 1
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        tasks.nothing.enqueue()
        raise ZeroDivisionError
    assert seen_by_others() == 1


def test_arguments_follow_the_frameworks_json_rules() -> None:
    result = tasks.echo.enqueue((1, (2,)), b"abc", keys={1: "one"}, text="…")
    assert (result.args, result.kwargs) == ([[1, [2]], "abc"], {"keys": {"1": "one"}, "text": "…"})
    job = Job.objects.get(pk=result.id)
    assert (job.args, job.kwargs) == (result.args, result.kwargs)


@pytest.mark.parametrize("value", [datetime.now(), object(), {1, 2}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.echo.enqueue(value)
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.echo.enqueue(inside=[value])
    assert not Job.objects.exists()


@pytest.mark.parametrize("value", ["a\0b", "\ud800", float("nan"), float("inf")])
def test_what_postgresql_does_not_store_is_refused_and_the_transaction_stays_usable(value: Any) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidArguments):
            tasks.echo.enqueue(value)
        tasks.echo.enqueue("fine")


def test_a_call_that_the_function_does_not_accept_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="name"):
        tasks.effect.enqueue()
    with pytest.raises(TypeError, match="two"):
        tasks.effect.enqueue("a", two=2)
    tasks.own_id.enqueue()  # the context is no argument of the call


def test_validation_is_the_frameworks(settings: Any) -> None:
    for choices, message in [
        ({"priority": 101}, "priority must be a whole number"),
        ({"priority": -101}, "priority must be a whole number"),
        ({"priority": 3.1}, "priority must be a whole number"),
        ({"run_after": datetime(2040, 1, 1)}, "run_after must be an aware datetime"),
        ({"backend": "patient", "queue_name": "unknown"}, "Queue 'unknown' is not valid for backend"),
        ({"queue_name": "q" * 65}, "more than 64 characters"),
    ]:
        with pytest.raises(InvalidTask, match=message):
            tasks.nothing.using(**choices)
    placed = tasks.nothing.using(queue_name="any")  # QUEUES is empty: every name is right
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["one"]}}
    with pytest.raises(InvalidTask, match="Queue 'any' is not valid"):
        placed.enqueue()
    with pytest.raises(InvalidTask, match="Queue 'any' is not valid"):
        async_to_sync(placed.aenqueue)()


def test_a_function_in_a_function_is_no_task() -> None:
    def inner() -> None: ...

    with pytest.raises(InvalidTask, match="module level"):
        type(tasks.nothing)(func=inner, priority=0, backend="default", queue_name="default", run_after=None)


def test_what_a_worker_would_not_find_is_refused() -> None:
    hidden = type(tasks.nothing)(
        func=asyncio.sleep, priority=0, backend="default", queue_name="default", run_after=None
    )
    with pytest.raises(InvalidTask, match=r"asyncio\.tasks is in no installed app"):
        hidden.enqueue(1)
    other = type(tasks.nothing)(
        func=tasks.leave_effect, priority=0, backend="default", queue_name="default", run_after=None
    )
    with pytest.raises(InvalidTask, match="no such Task at the top level"):
        other.enqueue("a")


def test_a_task_declared_for_another_backend_is_refused_at_enqueue(settings: Any) -> None:
    immediate = f"{task_backends.__class__.__module__}.backends.immediate.ImmediateBackend"
    settings.TASKS = {"default": {"BACKEND": immediate, "QUEUES": []}, "ours": {"BACKEND": BACKEND, "QUEUES": []}}
    with pytest.raises(InvalidTask, match="declared for the backend 'default', which is no ReliableBackend"):
        tasks.nothing.using(backend="ours").enqueue()


def test_a_task_runs_under_the_policy_of_the_backend_that_it_is_enqueued_through() -> None:
    own, other = tasks.nothing.enqueue(), tasks.nothing.using(backend="patient").enqueue()
    rows = {str(job.pk): job for job in Job.objects.all()}
    assert (rows[own.id].task, rows[own.id].max_attempts) == ("tests.framework_tasks.nothing", 1)
    assert (rows[other.id].task, rows[other.id].max_attempts) == ("tests.framework_tasks.nothing@patient", 3)
    assert (own.backend, other.backend) == ("default", "patient")


def test_enqueue_logs(caplog: pytest.LogCaptureFixture) -> None:
    logger = "django.tasks" if tasks.task.__module__.startswith("django.tasks") else "django_tasks"
    with caplog.at_level("DEBUG", logger=logger):
        result = tasks.nothing.enqueue()
    [record] = caplog.records
    assert "enqueued" in record.getMessage() and result.id in record.getMessage()


def test_enqueue_under_an_event_loop_names_aenqueue() -> None:
    async def view() -> None:
        tasks.nothing.enqueue()

    with pytest.raises(SynchronousOnlyOperation, match=r"enqueue\(\) would block .* use `await ….aenqueue"):
        asyncio.run(view())
