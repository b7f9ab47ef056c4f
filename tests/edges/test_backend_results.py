"""ReliableBackend: what a result tells of a job, whatever became of it."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

pytest.importorskip("django_reliable_jobs.tasks_framework", exc_type=ImportError)

from django_reliable_jobs import exceptions
from django_reliable_jobs.engine import lifecycle
from django_reliable_jobs.models import Attempt, Job
from django_reliable_jobs.tasks_framework import TaskResultDoesNotExist, TaskResultStatus, task_backends
from django_reliable_jobs.testing import at, run_jobs
from tests import factories
from tests import framework_tasks as tasks
from tests import tasks as our_tasks

pytestmark = pytest.mark.django_db
BACKEND = task_backends["default"]
PATH = "tests.framework_tasks.nothing"


def test_a_result_is_found_again_by_one_statement(django_assert_num_queries: Any) -> None:
    placed = tasks.effect.using(priority=3, queue_name="slow", run_after=timezone.now() + timedelta(hours=1))
    for result in (tasks.nothing.enqueue(1, two=[3]), placed.enqueue("a")):
        with django_assert_num_queries(1):
            assert BACKEND.get_result(result.id) == result
        assert async_to_sync(BACKEND.aget_result)(result.id) == result
        assert result.task.get_result(result.id) == result


@pytest.mark.parametrize("result_id", ["123", "", "no number", "-1", "1" * 40, "9" * 19, "1" * 5000, "²", None])
def test_an_unknown_id_has_no_result(result_id: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        BACKEND.get_result(result_id)
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(BACKEND.aget_result)(result_id)


def test_a_job_of_our_own_tasks_has_no_result() -> None:
    with pytest.raises(TaskResultDoesNotExist, match=r"tests\.tasks\.nothing"):
        BACKEND.get_result(str(our_tasks.nothing.enqueue().pk))


@pytest.mark.parametrize(
    "path", ["subprocess.check_output", "missing.function", "tests.framework_tasks.leave_effect", "os", "", "a@b@c"]
)
def test_a_row_that_names_no_task_has_no_result(path: str) -> None:
    job = factories.ReadyJobFactory(task=path, args=[["exit", "1"]])
    with pytest.raises(TaskResultDoesNotExist):
        BACKEND.get_result(str(job.pk))


def test_a_result_of_another_task_does_not_match() -> None:
    result = tasks.nothing_async.enqueue()
    with pytest.raises(Exception, match="Task does not match"):
        tasks.nothing.get_result(result.id)


@pytest.mark.parametrize(
    ("factory", "status", "is_finished"),
    [
        (factories.ScheduledJobFactory, "READY", False),
        (factories.RetryingJobFactory, "READY", False),
        (factories.ReadyJobFactory, "READY", False),
        (factories.WaitingJobFactory, "READY", False),
        (factories.RunningJobFactory, "RUNNING", False),
        (factories.SucceededJobFactory, "SUCCESSFUL", True),
        (factories.DeadJobFactory, "FAILED", True),
        (factories.CancelledJobFactory, "FAILED", True),
    ],
)
def test_every_status_has_its_word(factory: Any, status: str, is_finished: bool) -> None:
    result = BACKEND.get_result(str(factory(task=PATH).pk))
    assert (result.status, result.is_finished) == (TaskResultStatus(status), is_finished)
    assert bool(result.errors) == (status == "FAILED" or factory is factories.RetryingJobFactory)
    if status == "SUCCESSFUL":
        assert result.return_value is None
    else:
        with pytest.raises(ValueError, match="Task failed" if status == "FAILED" else "Task has not finished yet"):
            result.return_value  # noqa: B018


def test_refresh_tells_the_end() -> None:
    for refresh in ("refresh", "arefresh"):
        result = tasks.answer.enqueue()
        run_jobs()
        assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
        getattr(result, refresh)() if refresh == "refresh" else async_to_sync(result.arefresh)()
        assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.SUCCESSFUL, True, 1)
        assert result.return_value == 42
        assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at


def test_a_failure_has_its_class_and_its_traceback() -> None:
    result = tasks.fails.enqueue("what broke")
    run_jobs(raise_errors=False)
    result.refresh()
    [error] = result.errors
    assert (result.status, error.exception_class) == (TaskResultStatus.FAILED, ValueError)
    assert error.traceback.startswith("Traceback (most recent call last):")
    assert error.traceback.endswith("ValueError: what broke\n")
    assert "raise ValueError(message)" in error.traceback and "django_reliable_jobs" not in error.traceback
    assert len(result.worker_ids) == result.attempts == 1
    assert result.started_at <= result.finished_at


@pytest.mark.parametrize(
    ("name", "exception", "text"),
    [
        ("fails_with_an_error_in_an_error", ValueError, "ValueError(ValueError('it broke'))"),
        ("exits", SystemExit, "SystemExit: it left"),
        ("is_interrupted", KeyboardInterrupt, "KeyboardInterrupt: somebody pressed Ctrl-C"),
    ],
)
def test_unusual_failures_are_told_too(name: str, exception: type[BaseException], text: str) -> None:
    result = getattr(tasks, name).enqueue()
    run_jobs(raise_errors=False)
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, exception)
    assert text.replace("'it broke'", "it broke") in result.errors[0].traceback.replace('"', "").replace("'", "")


def test_a_cancelled_job_and_one_that_expired_tell_why() -> None:
    result = tasks.nothing.enqueue()
    lifecycle.cancel("default", [int(result.id)], reason="no longer wanted")
    result.refresh()
    [error] = result.errors
    assert (error.exception_class, error.traceback) == (exceptions.Cancel, "no longer wanted\n")
    assert (result.attempts, result.started_at) == (0, None)


def test_a_lost_worker_is_an_error_and_a_snooze_is_none() -> None:
    job = factories.SucceededJobFactory(task=PATH, claims=3, attempt=3)
    for claim, outcome in enumerate((Attempt.Outcome.LOST, Attempt.Outcome.SNOOZED, Attempt.Outcome.INTERRUPTED), 1):
        words = {"worker": f"host:{claim}", "error_class": "WorkerLost", "error_message": "its lease ended"}
        factories.FailedAttemptFactory(job=job, claim=claim, outcome=outcome, **words)
    result = BACKEND.get_result(str(job.pk))
    assert [(error.exception_class, error.traceback) for error in result.errors] == [
        (exceptions.LeaseLost, "its lease ended\n")
    ]
    assert result.worker_ids == ["host:1", "host:2", "host:3", str(job.worker_id)]


def test_the_worker_has_a_name_while_it_is_on_the_list() -> None:
    worker = factories.WorkerFactory(host="h" * 90, pid=7)
    job = factories.RunningJobFactory(task=PATH, worker_id=worker.pk)
    [worker_id] = BACKEND.get_result(str(job.pk)).worker_ids
    assert worker_id == "h" * 64


def test_a_retry_that_waits_is_ready_with_its_errors() -> None:
    result = tasks.ends_by.enqueue("retry")
    run_jobs(raise_errors=False)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.READY, 1, 1)
    assert result.started_at is not None and result.finished_at is None


def test_a_row_outlives_a_change_of_queues(settings: Any) -> None:
    result = tasks.nothing.using(queue_name="old").enqueue()
    settings.TASKS = {"default": {"BACKEND": "django_reliable_jobs.backend.ReliableBackend"}}
    assert task_backends["default"].get_result(result.id).task.queue_name == "old"


def test_a_result_is_copied_and_tells_the_backend_that_it_came_through() -> None:
    result = tasks.nothing.using(backend="patient").enqueue(1)
    found = task_backends["patient"].get_result(result.id)
    assert (found, found.backend, found.task.backend) == (result, "patient", "patient")
    assert copy.copy(found.errors) == []


def test_a_result_is_pickled_where_the_framework_can() -> None:
    if not hasattr(type(tasks.nothing), "_reconstruct"):
        pytest.skip("before Django 6.1, a Task can't be pickled")
    result = tasks.nothing.enqueue(1)
    assert pickle.loads(pickle.dumps(result)) == result
    assert pickle.loads(pickle.dumps(tasks.unique)) == tasks.unique


def test_due_later_is_told_as_it_was_asked_for() -> None:
    due = timezone.now() + timedelta(days=1)
    result = tasks.nothing.using(run_after=due).enqueue()
    with at(due):
        run_jobs()
    result.refresh()
    assert (result.task.run_after, result.status) == (due, TaskResultStatus.SUCCESSFUL)
    assert BACKEND.get_result(result.id).task.run_after == due
    assert Job.objects.get().started_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_backend_may_keep_its_jobs_in_another_database(jobs_database: str, settings: Any) -> None:
    options = {"database": jobs_database}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        result = tasks.answer.enqueue()
        _ = 1 / 0
    run_jobs(using=jobs_database)
    result.refresh()
    assert result.return_value == 42, "it was no part of the transaction on the other database"
    with transaction.atomic(using=jobs_database):
        result = tasks.answer.enqueue()
        assert task_backends["default"].get_result(result.id) == result
        transaction.set_rollback(True, using=jobs_database)
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()
