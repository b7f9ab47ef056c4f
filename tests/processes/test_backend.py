"""Tasks of Django's framework in real workers, and in processes that never import the framework themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

pytest.importorskip("django_reliable_jobs.tasks_framework", exc_type=ImportError)

from django_reliable_jobs import exceptions
from django_reliable_jobs.engine import inspection, obstacles
from django_reliable_jobs.models import Job, Queue, Worker
from django_reliable_jobs.tasks_framework import TaskResultStatus, task_backends
from tests import factories
from tests import framework_tasks as tasks
from tests.actors import wait_for
from tests.factories import PausedQueueFactory
from tests.models import Effect
from tests.workers import CHECKOUT, WorkerProcess

PROJECT = """
import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    INSTALLED_APPS=["django_reliable_jobs"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql"}}}},
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    TASKS={tasks!r},
    RELIABLE_JOBS={{"TASK_MODULES": {modules!r}}},
)
django.setup()
{then}
"""
SHORT_LEASE = {"LEASE_SECONDS": 1.5}
BACKEND = "django_reliable_jobs.backend.ReliableBackend"


FRAMEWORK = tasks.task.__module__.partition(".base")[0]


def run_project(tasks: dict[str, Any], then: str, folder: Path = CHECKOUT, **given: Any) -> Any:
    """Run a few lines in a project that has nothing but our app."""
    code = PROJECT.format(tasks=tasks, then=then, modules=given.pop("modules", []))
    for old, new in given.items():
        code = code.replace(old, new)
    paths = os.pathsep.join([str(folder), str(CHECKOUT)])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_worker_runs_what_the_framework_enqueued(start_worker: Callable[..., WorkerProcess]) -> None:
    with transaction.atomic():
        results = [
            tasks.effect.enqueue("a"),
            tasks.effect_async.enqueue("b"),
            tasks.own_id.enqueue(),
            tasks.own_id_async.enqueue(),
            tasks.fails_until.enqueue(3),
            tasks.answer.using(backend="patient", queue_name="patient").enqueue(),
        ]
    failed = tasks.fails.enqueue()
    exit_code = start_worker("--burst", ready=False).wait()
    for result in (*results, failed):
        result.refresh()
    assert exit_code == 0
    assert [result.return_value for result in results] == [
        *("a", ["b"], [results[2].id, 1, "RUNNING"], [results[3].id, 1, "RUNNING"], [3, 2], 42)
    ]
    assert [len(result.worker_ids) for result in results] == [1, 1, 1, 1, 3, 1]
    assert (failed.status, failed.errors[0].exception_class) == (TaskResultStatus.FAILED, ValueError)
    assert sorted(Effect.objects.values_list("name", flat=True)) == ["a", "b"]


def test_a_task_whose_module_nothing_imports_at_start_is_found_with_its_job(
    start_worker: Callable[..., WorkerProcess],
) -> None:
    start_worker()
    [known] = Worker.objects.values_list("tasks", flat=True)
    assert "tests.framework_tasks.answer" not in known
    PausedQueueFactory(name="default")
    result = tasks.answer.enqueue()
    unknown = factories.ReadyJobFactory(task="tests.framework_tasks.nobody")
    assert [each.task for each in inspection.unknown_tasks("default")] == [unknown.task]
    assert "knew its task" not in " ".join(obstacles.explain_waiting("default", Job.objects.get(pk=result.id)))
    assert "knew its task" in " ".join(obstacles.explain_waiting("default", unknown))
    Queue.objects.update(paused_at=None)
    wait_for(lambda: Job.objects.get(pk=result.id).has_ended, what="the end of a job whose module came with it")


def test_a_task_whose_worker_dies_has_failed_and_is_not_run_again(start_worker: Callable[..., WorkerProcess]) -> None:
    result = tasks.dies_of_a_signal.enqueue()
    victim = start_worker("--threads", "1", settings=SHORT_LEASE)
    victim.wait()
    start_worker(settings=SHORT_LEASE)
    wait_for(lambda: task_backends["default"].get_result(result.id).is_finished, what="the rescue")
    result.refresh()
    [error] = result.errors
    assert (result.status, error.exception_class) == (TaskResultStatus.FAILED, exceptions.LeaseLost)
    assert result.attempts == 1


def test_the_signals_are_sent_in_the_worker(start_worker: Callable[..., WorkerProcess]) -> None:
    result = tasks.answer.enqueue()
    worker = start_worker("--burst", ready=False, environment={"TESTS_LISTEN_TO_TASKS": "1"})
    worker.wait()
    told = list(Effect.objects.order_by("id").values_list("name", flat=True))
    assert told == [f"started {result.id} RUNNING", f"finished {result.id} SUCCESSFUL"]


def test_the_check_runs_though_nothing_imports_the_framework() -> None:
    wrong = {"default": {"BACKEND": BACKEND, "OPTIONS": {"max_attempt": 3}}}
    done = run_project(wrong, 'call_command("check")')
    assert "has no key 'max_attempt': did you mean 'max_attempts'?" in done.stderr
    assert run_project({"default": {"BACKEND": BACKEND}}, 'call_command("check")').returncode == 0


@pytest.mark.parametrize(("modules", "found"), [([], "None\n"), (["lonely"], "<Task lonely.work max_attempts=1>\n")])
def test_a_name_leads_to_modules_of_the_project_and_to_no_others(
    modules: list[str], found: str, tmp_path: Path
) -> None:
    (tmp_path / "lonely.py").write_text(f"from {FRAMEWORK} import task\n\n@task\ndef work(): ...\n")
    then = "from django_reliable_jobs import registry; print(registry.find('lonely.work'))"
    done = run_project({"default": {"BACKEND": BACKEND}}, then, tmp_path, modules=modules)
    assert (done.stdout, done.stderr) == (found, "")


def test_tasks_may_be_declared_before_the_models_are_loaded() -> None:
    declare = f"from {FRAMEWORK} import task\n\ndef work(): ...\n\nprint(task(work).name)"
    done = run_project({"default": {"BACKEND": BACKEND}}, "", **{"django.setup()": declare})
    assert (done.stdout, done.stderr) == ("work\n", "")
