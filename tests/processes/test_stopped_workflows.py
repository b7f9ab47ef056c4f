"""A deployment, a timeout and a kill in the middle of steps, waits and undos, in real workers."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from django.db import connection

from django_reliable_jobs.engine import lifecycle
from django_reliable_jobs.models import Attempt, Checkpoint, Job
from tests import slow_step_tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.processes.test_workflows import wait_until
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def effects() -> list[str]:
    return list(Effect.objects.order_by("pk").values_list("name", flat=True))


def wait_for_effect(name: str) -> None:
    wait_for(lambda: name in effects(), what=name)


def end_sessions_that_sleep() -> None:
    """Those of killed workers: the server would notice after the sleep only."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%pg_sleep%'"
        )


def undoing_job(task: object) -> Job:
    job: Job = task.enqueue()  # type: ignore[attr-defined]
    wait_until(job, "WAITING")
    lifecycle.cancel("default", [job.pk], reason="no more")
    wait_for_effect("begin to unmake a")
    return job


def test_a_deployment_lets_a_step_end_and_the_next_worker_begins_the_next(start_worker: StartWorker) -> None:
    worker = start_worker()
    job = slow_step_tasks.makes_two.enqueue()
    wait_for_effect("begin a")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert Job.objects.get(pk=job.pk).status == "READY"
    assert effects() == ["begin a", "made a"]
    start_worker()
    assert wait_until(job, "SUCCEEDED").result == ["a", "b"]
    assert effects() == ["begin a", "made a", "begin b", "made b"]


def test_a_deployment_while_a_parent_waits_for_its_child_loses_neither(start_worker: StartWorker) -> None:
    worker = start_worker("--threads", "1")
    job = slow_step_tasks.makes_two_by_a_child.enqueue()
    wait_for_effect("begin b")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    start_worker("--threads", "1")
    assert wait_until(job, "SUCCEEDED").result == ["a", "b"]
    assert effects() == ["begin a", "made a", "begin b", "made b"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_an_undo_that_is_cut_goes_on_elsewhere(start_worker: StartWorker, end: signal.Signals) -> None:
    fast = {"LEASE_SECONDS": 2, "POLL_SECONDS": 0.1}
    worker = start_worker("--shutdown-timeout", "1", settings=fast)
    job = undoing_job(slow_step_tasks.makes_one_and_waits)
    worker.send(end)
    worker.wait()
    end_sessions_that_sleep()
    start_worker(settings=fast)
    ended = wait_until(job, "CANCELLED")
    assert (ended.compensation, ended.reason) == ("done", "no more")
    assert effects()[2:] == ["begin to unmake a", "begin to unmake a", "unmade a"]


def test_an_undo_that_hangs_fails_at_the_timeout_of_its_task_and_is_tried_again(start_worker: StartWorker) -> None:
    start_worker()
    job = undoing_job(slow_step_tasks.makes_one_in_time_and_waits)
    assert wait_until(job, "CANCELLED").compensation == "done"
    assert effects()[2:] == ["begin to unmake a", "begin to unmake a", "unmade a"]
    assert Checkpoint.objects.get(name="make a").undo_tries == 2
    assert not Attempt.objects.exists()
