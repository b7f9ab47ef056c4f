"""ReliableBackend: what a Task sees and tells while a worker runs it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

pytest.importorskip("django_reliable_jobs.tasks_framework", exc_type=ImportError)

from django_reliable_jobs import Every, registry
from django_reliable_jobs.backend import ReliableBackend
from django_reliable_jobs.engine import schedules
from django_reliable_jobs.models import Attempt, Job
from django_reliable_jobs.schedule_options import ScheduleOptions
from django_reliable_jobs.tasks_framework import TaskResultStatus, task_enqueued, task_finished, task_started
from django_reliable_jobs.testing import at, inline, run_jobs, tick
from tests import framework_tasks as tasks
from tests import tasks as our_tasks
from tests.factories import ReadyJobFactory
from tests.models import Effect

pytestmark = pytest.mark.django_db


@pytest.fixture
def told() -> Iterator[list[tuple[Any, ...]]]:
    """What the signals told, in their order, and the exception that was being handled."""
    events: list[tuple[Any, ...]] = []

    def started(sender: Any, task_result: Any, **_: Any) -> None:
        events.append(("started", sender, task_result.id, task_result.status, None))

    def finished(sender: Any, task_result: Any, **_: Any) -> None:
        events.append(("finished", sender, task_result.id, task_result.status, sys.exc_info()[0]))

    task_started.connect(started)
    task_finished.connect(finished)
    yield events
    task_started.disconnect(started)
    task_finished.disconnect(finished)


def run(task: Any, *args: Any, **kwargs: Any) -> Any:
    """Enqueue, run until nothing is ready, and return the result as it is then."""
    result = task.enqueue(*args, **kwargs)
    run_jobs(raise_errors=False)
    result.refresh()
    return result


def test_functions_and_coroutines_run() -> None:
    assert run(tasks.effect, "a").return_value == "a"
    assert run(tasks.effect_async, "b").return_value == ["b"]
    assert run(tasks.nothing, 1, two=3).return_value is None
    assert run(tasks.nothing_async, 1, two=3).return_value is None
    assert [effect.name for effect in Effect.objects.order_by("id")] == ["a", "b"]


def test_arguments_arrive_as_json() -> None:
    assert run(tasks.echo, (1,), b"x", deep={2: (3,)}).return_value == [[[1], "x"], {"deep": {"2": [3]}}]


@pytest.mark.parametrize(("kind", "value"), [("tuple", [1, [2]]), ("bytes", "abc"), ("keys", {"1": "one"})])
def test_a_return_value_follows_the_frameworks_json_rules(kind: str, value: Any) -> None:
    assert run(tasks.returns, kind).return_value == value


def test_a_return_value_that_is_no_json_fails_the_task() -> None:
    result = run(tasks.returns, "object")
    assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, TypeError)
    assert "Unsupported type" in result.errors[0].traceback
    assert run(tasks.returns, "nan").status == TaskResultStatus.FAILED


@pytest.mark.parametrize("name", ["own_id", "own_id_async"])
def test_a_task_that_takes_its_context_sees_its_own_result(name: str) -> None:
    result = run(getattr(tasks, name))
    assert result.return_value == [result.id, 1, "RUNNING"]


def test_the_context_counts_attempts_and_knows_their_errors() -> None:
    result = run(tasks.fails_until, 3)
    assert (result.return_value, result.attempts) == ([3, 2], 3)
    assert [error.exception_class for error in result.errors] == [ConnectionError, ConnectionError]


def test_signals_tell_start_and_end(told: list[Any]) -> None:
    result = run(tasks.answer)
    assert told == [
        ("started", ReliableBackend, result.id, TaskResultStatus.RUNNING, None),
        ("finished", ReliableBackend, result.id, TaskResultStatus.SUCCESSFUL, None),
    ]


def test_the_signal_of_a_failure_is_sent_while_the_exception_is_at_hand(told: list[Any]) -> None:
    result = run(tasks.fails)
    assert told[1:] == [("finished", ReliableBackend, result.id, TaskResultStatus.FAILED, ValueError)]


def test_the_finished_result_has_all_that_the_stored_one_has() -> None:
    seen: list[Any] = []

    def keep(task_result: Any, **_: Any) -> None:
        seen.append(task_result)

    task_finished.connect(keep)
    try:
        results = [run(tasks.answer), run(tasks.fails, "a"), run(tasks.fails_until, 2)]
    finally:
        task_finished.disconnect(keep)
    for told, stored in zip(seen, results, strict=True):
        for attribute in ("status", "_return_value", "attempts", "started_at", "enqueued_at"):
            assert getattr(told, attribute) == getattr(stored, attribute)
        assert [each.exception_class for each in told.errors] == [each.exception_class for each in stored.errors]
        assert abs(told.finished_at - stored.finished_at) < timedelta(seconds=10)


def test_inline_a_task_is_told_to_be_enqueued_before_it_starts_too(told: list[Any]) -> None:
    seen: list[Any] = []

    def enqueued(task_result: Any, **_: Any) -> None:
        told.append(("enqueued", None, task_result.id, task_result.status, None))
        seen.append(task_result)

    task_enqueued.connect(enqueued)
    try:
        with inline():
            result = tasks.answer.enqueue()
    finally:
        task_enqueued.disconnect(enqueued)
    assert [(event, str(status)) for event, _, _, status, _ in told] == [
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("finished", "SUCCESSFUL"),
    ]
    assert (result.return_value, result.attempts, result is seen[0]) == (42, 1, True)


def test_a_task_that_will_be_tried_again_has_not_finished(told: list[Any]) -> None:
    result = run(tasks.ends_by, "retry")
    assert [(event, status) for event, _, _, status, _ in told] == [("started", TaskResultStatus.RUNNING)]
    with at(timezone.now() + timedelta(minutes=2)):
        run_jobs(raise_errors=False)
    assert [event for event, *_ in told] == ["started", "started"]
    assert result.attempts == 1
    run(tasks.ends_by, "snooze")
    assert "finished" not in [event for event, *_ in told]
    run(tasks.ends_by, "cancel")
    assert told[-1][0::3] == ("finished", TaskResultStatus.FAILED)


def test_a_receiver_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def break_(**_: Any) -> None:
        raise RuntimeError("a receiver broke")

    task_started.connect(break_)
    task_finished.connect(break_)
    try:
        assert run(tasks.answer).return_value == 42
    finally:
        task_started.disconnect(break_)
        task_finished.disconnect(break_)
    assert sum("a receiver broke" in str(record.exc_info) for record in caplog.records) == 2


def test_the_frameworks_logger_tells_each_step(caplog: pytest.LogCaptureFixture) -> None:
    name = "django.tasks" if tasks.task.__module__.startswith("django.tasks") else "django_tasks"
    with caplog.at_level(logging.DEBUG, logger=name):
        result, failed = run(tasks.answer), run(tasks.fails)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name.startswith(name)]
    for expected, (level, line) in zip(
        ["enqueued", "state=RUNNING", "state=SUCCESSFUL", "enqueued", "state=RUNNING", "state=FAILED"],
        lines,
        strict=True,
    ):
        assert expected in line and (result.id in line or failed.id in line)
        assert (level == "ERROR") == (expected == "state=FAILED")


def test_a_task_is_tried_once_if_nothing_else_is_said() -> None:
    result = run(tasks.fails)
    assert (result.status, Job.objects.get().attempt) == (TaskResultStatus.FAILED, 1)
    assert Attempt.objects.count() == 1


@pytest.mark.parametrize(
    "path", ["subprocess.check_output", "tests.framework_tasks.leave_effect", "tests.nowhere.task", "os.system", "x@y"]
)
def test_a_row_that_names_anything_else_is_put_back_and_never_called(path: str) -> None:
    job = ReadyJobFactory(task=path, args=["exit"])
    run_jobs(raise_errors=False)
    job.refresh_from_db()
    assert (job.status, job.attempt) == ("SCHEDULED", 0)
    assert "no worker that claimed it knows the task" in job.reason


def test_a_row_of_a_task_bound_to_another_backend_is_not_run(settings: Any) -> None:
    module = tasks.task.__module__.partition(".base")[0]
    ours = settings.TASKS["default"]
    result = tasks.effect.enqueue("a")
    through = ReadyJobFactory(task="tests.framework_tasks.effect@ours", args=["b"])
    settings.TASKS = {
        "default": {"BACKEND": f"{module}.backends.dummy.DummyBackend", "QUEUES": []},
        "ours": ours,
    }
    assert registry.find("tests.framework_tasks.effect") is None
    run_jobs(raise_errors=False)
    assert dict(Job.objects.values_list("pk", "status")) == {int(result.id): "SCHEDULED", through.pk: "SCHEDULED"}
    assert Effect.objects.count() == 0


def test_a_schedule_makes_jobs_of_a_task_of_the_framework() -> None:
    options = ScheduleOptions(recurrence=Every(hours=1), kwargs={"name": "hourly"})
    schedules.create("default", name="hourly effect", task="tests.framework_tasks.effect", options=options)
    with at(timezone.now() + timedelta(hours=1)):
        [job] = [job for job in tick() if job.task == "tests.framework_tasks.effect"]
        run_jobs()
    assert Effect.objects.get().name == "hourly"
    assert tasks.effect.get_result(str(job.pk)).return_value == "hourly"


def test_nothing_is_read_of_a_result_that_nobody_looks_into(django_assert_num_queries: Any) -> None:
    our_tasks.nothing.enqueue()
    with CaptureQueriesContext(connection) as ours:
        run_jobs()
    tasks.nothing.enqueue()
    with django_assert_num_queries(len(ours)):
        run_jobs()


def test_a_receiver_may_look_into_the_result_whenever_it_likes() -> None:
    kept: list[Any] = []

    def keep(task_result: Any, **_: Any) -> None:
        kept.append(task_result)

    task_finished.connect(keep)
    try:
        job_id = tasks.effect.using(priority=3, queue_name="slow").enqueue("a").id
        run_jobs()
        tasks.answer.enqueue()
        run_jobs()
    finally:
        task_finished.disconnect(keep)
    first, second = kept
    Job.objects.filter(pk=second.id).delete()
    stored = first.task.get_result(job_id)
    assert (first.enqueued_at, first.started_at, first.attempts) == (stored.enqueued_at, stored.started_at, 1)
    assert (first.task.priority, first.task.queue_name, first.return_value) == (3, "slow", "a")
    assert (second.enqueued_at, second.worker_ids, second.return_value) == (None, [], 42), "its row is gone"
    with pytest.raises(AttributeError):
        first.nonsense  # noqa: B018
