"""Steps and waits in real workers."""

from __future__ import annotations

import time
from collections.abc import Callable

from django_reliable_jobs import emit_event
from django_reliable_jobs.models import Attempt, Checkpoint, Job
from tests import step_tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def has_status(job: Job, status: str) -> bool:
    return Job.objects.filter(pk=job.pk, status=status).exists()


def wait_until(job: Job, status: str) -> Job:
    wait_for(lambda: has_status(job, status), what=f"job {job.pk} to be {status}")
    return Job.objects.get(pk=job.pk)


def test_a_step_that_runs_too_long_fails_and_the_task_goes_on_another_way(start_worker: StartWorker) -> None:
    job = step_tasks.gives_up_a_slow_step.enqueue(0.3)
    start_worker()
    assert wait_until(job, "SUCCEEDED").result == "gave up"
    assert Effect.objects.filter(name="slow").count() == 2
    assert Effect.objects.filter(name="before").count() == 1
    slow = Checkpoint.objects.get(name="slow")
    assert (slow.state, slow.tries) == ("failed", 2)
    assert slow.error == "TimeoutError: the step ran longer than its timeout"
    assert not Attempt.objects.exists()


def test_an_idle_worker_hears_of_an_event_at_once(start_worker: StartWorker) -> None:
    worker = start_worker(settings={"POLL_SECONDS": 60})
    job = step_tasks.waits.enqueue("paid")
    wait_until(job, "WAITING")
    wait_for(lambda: worker.row is not None and worker.row.is_idle, what="the worker to sleep")
    emitted_at = time.monotonic()
    emit_event("paid", 5)
    assert wait_until(job, "SUCCEEDED").result == 5
    assert time.monotonic() - emitted_at < 40


def test_a_waiting_job_holds_no_thread(start_worker: StartWorker) -> None:
    waiting = [step_tasks.waits.enqueue(f"event {number}") for number in range(5)]
    start_worker("--threads", "1")
    for job in waiting:
        wait_until(job, "WAITING")
    for number in range(5):
        emit_event(f"event {number}", number)
    assert [wait_until(job, "SUCCEEDED").result for job in waiting] == list(range(5))


def test_a_nap_ends_when_it_is_due(start_worker: StartWorker) -> None:
    job = step_tasks.naps.enqueue(1.5)
    start_worker()
    slept = wait_until(job, "SUCCEEDED")
    before, after = Effect.objects.order_by("pk").values_list("at", flat=True)
    assert 1.5 <= (after - before).total_seconds() < 20
    assert (slept.claims, slept.attempt) == (2, 1)


def test_a_coroutine_asks_for_steps_in_a_thread(start_worker: StartWorker) -> None:
    job = step_tasks.waits_in_a_coroutine.enqueue("paid")
    start_worker()
    wait_until(job, "WAITING")
    emit_event("paid", 5)
    assert wait_until(job, "SUCCEEDED").result == ["kept", 5]
    assert Effect.objects.filter(name="once").count() == 1


def test_on_the_event_loop_a_step_is_refused_with_the_way_out(start_worker: StartWorker) -> None:
    job = step_tasks.asks_on_the_event_loop.enqueue()
    start_worker()
    assert "use `await sync_to_async(step)(…)`" in (wait_until(job, "DEAD").reason or "")


def test_a_burst_wakes_who_waits_before_it_ends(start_worker: StartWorker) -> None:
    job = step_tasks.waits.enqueue("paid")
    assert start_worker("--burst", ready=False).wait() == 0
    assert has_status(job, "WAITING")
    emit_event("paid", 1)
    assert start_worker("--burst", ready=False).wait() == 0
    assert has_status(job, "SUCCEEDED")


def test_a_timeout_that_comes_after_the_commit_of_an_atomic_step_is_too_late(start_worker: StartWorker) -> None:
    job = step_tasks.keeps_a_step_with_a_slow_hook.enqueue()
    start_worker()
    assert job.wait(timeout=30) == "kept"
    assert list(Effect.objects.values_list("name", flat=True)) == ["hooked"]
    assert Checkpoint.objects.get().state == "done"
