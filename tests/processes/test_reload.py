"""`runworker --reload`: code changes under a running job."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import autoreload

from django_reliable_jobs.management import reloading
from django_reliable_jobs.models import Job, Worker
from tests import tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

_seconds = itertools.count(5)

SOURCE = "from tests.tasks import effect\n"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "reloaded_tasks.py"
    path.write_text(SOURCE)
    return path


def start_reloading(start_worker: StartWorker, module: Path, *arguments: str) -> WorkerProcess:
    worker = start_worker(
        "--reload",
        *arguments,
        settings={"TASK_MODULES": ["tests.tasks", module.stem]},
        environment={"PYTHONPATH": f"{module.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        ready=False,
    )
    wait_for(lambda: Worker.objects.exists() or worker.has_ended, what="the worker to register")
    assert not worker.has_ended, worker.output
    return worker


def change(module: Path, text: str) -> None:
    module.write_text(text)
    moment = module.stat().st_mtime + next(_seconds)  # the reloader compares moments
    os.utime(module, (moment, moment))


def test_a_change_gives_back_the_running_job_and_starts_again(start_worker: StartWorker, module: Path) -> None:
    worker = start_reloading(start_worker, module)
    job = tasks.slow_once.enqueue(60)
    first = wait_for(lambda: Effect.objects.first(), what="the job to begin").pid

    def is_given_back() -> bool:
        change(module, SOURCE + "# changed\n")  # once is not enough: the reloader may not have begun to watch
        return job.attempts.exists()

    wait_for(is_given_back, what="the job to be given back")
    assert job.wait(timeout=30) is None
    assert set(Effect.objects.values_list("pid", flat=True)) > {first}
    assert job.attempts.get().outcome == "interrupted"
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0, worker.output


def test_a_worker_that_is_to_be_replaced_is_started_again(start_worker: StartWorker, module: Path) -> None:
    worker = start_reloading(start_worker, module, "--max-jobs", "1")
    for each in ("first", "second"):
        tasks.effect.enqueue(each).wait(timeout=60)
    assert len(set(Effect.objects.values_list("pid", flat=True))) == 2
    assert "stops, for whoever watches it to start another: it has run as many jobs as --max-jobs" in worker.output
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0, worker.output


def test_sigterm_reaches_the_worker(start_worker: StartWorker, module: Path) -> None:
    worker = start_reloading(start_worker, module)
    job = tasks.slow.enqueue(1)
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0, worker.output
    job.refresh_from_db()
    assert job.status == Job.Status.SUCCEEDED
    assert not Worker.objects.exists()


def test_a_stop_that_comes_between_two_children_ends_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(reloading, "_moments_of_files", lambda: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(
        autoreload, "get_child_arguments", lambda: [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    try:
        assert reloading.run_children() == 0, "a child that had not begun has cut nothing"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_code_that_can_not_be_imported_is_waited_for(start_worker: StartWorker, module: Path) -> None:
    worker = start_reloading(start_worker, module)

    def is_told() -> bool:
        change(module, "def broken(:\n")
        return "waiting for the next change" in worker.output

    wait_for(is_told, what="the error to be told")
    change(module, SOURCE + "# mended\n\n")
    assert tasks.effect.enqueue("after").wait(timeout=30) == "after"
