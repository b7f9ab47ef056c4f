"""How a worker stops, and how a job is cancelled: what is given back, to whom, and when."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from django_reliable_jobs.engine import lifecycle
from django_reliable_jobs.models import CancelRequest, Job, Worker
from django_reliable_jobs.processes import worker as worker_process
from django_reliable_jobs.processes.queues import QueueOrder
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.gates import open_gate, wait_at_gate
from tests.models import Effect, Span
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

QUICK = {"POLL_SECONDS": 0.2}


def assert_no_job_ran_twice_at_the_same_time() -> None:
    """An attempt of a job begins after the last sign of life of the one before, by the database's clock."""
    spans = defaultdict(list)
    for span in Span.objects.order_by("job_id", "claim"):
        spans[span.job_id].append(span)
    for of_job in spans.values():
        for earlier, later in pairwise(of_job):
            assert earlier.seen_at < later.began_at, f"{earlier} and {later} overlap"


def test_workers_that_are_stopped_under_load_lose_no_job_and_run_none_twice_at_once(start_worker: StartWorker) -> None:
    seconds = [0.01 * (number % 10) for number in range(400)]
    jobs = interrupted_tasks.span.enqueue_many([{"seconds": each} for each in seconds])
    fleet = [start_worker("--threads", "4", settings=QUICK) for _ in range(2)]
    for stopped in range(4):
        wait_for(lambda: Span.objects.count() > 60 * (stopped + 1), what="the workers to work")  # noqa: B023
        leaver = fleet.pop(0)
        leaver.send(signal.SIGTERM)
        fleet.append(start_worker("--threads", "4", settings=QUICK))
        assert leaver.wait() == 0, "every running job had its time"
        assert not Worker.objects.filter(pid=leaver.pid).exists()
    wait_for(lambda: Job.objects.filter(status="SUCCEEDED").count() == len(jobs), what="all to succeed")
    assert_no_job_ran_twice_at_the_same_time()
    assert Span.objects.filter(has_ended=True).count() == Span.objects.count() == len(jobs)
    assert not Job.objects.exclude(attempt=1, losses=0).exists()


def test_jobs_that_are_cut_are_not_started_elsewhere_before_the_process_is_gone(start_worker: StartWorker) -> None:
    other = start_worker("--threads", "8", settings=QUICK)
    other.send(signal.SIGSTOP)  # so that the leaver gets them all
    jobs = interrupted_tasks.span.enqueue_many([{"seconds": 30, "stubborn": True, "later": 0.5}] * 8)
    leaver = start_worker("--threads", "8", "--shutdown-timeout", "1", settings=QUICK)
    wait_for(lambda: Span.objects.count() == 8, what="all to run")
    stopped_at = time.monotonic()
    leaver.send(signal.SIGTERM)
    other.send(signal.SIGCONT)
    assert leaver.wait() == 1
    assert time.monotonic() - stopped_at < 20, "within the time allowed, and a little for the last writes"
    wait_for(lambda: Job.objects.filter(status="SUCCEEDED").count() == len(jobs), what="the other worker to do them")
    assert_no_job_ran_twice_at_the_same_time()
    for job in Job.objects.all():
        assert (job.attempt, job.claims, job.losses) == (1, 2, 0)
        assert job.attempts.get().outcome == "interrupted"


def test_a_second_signal_hurries(start_worker: StartWorker) -> None:
    job = tasks.slow.enqueue(60)
    worker = start_worker("--shutdown-timeout", "60")
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    worker.send(signal.SIGTERM)
    wait_for(lambda: Worker.objects.filter(is_stopping=True).exists(), what="the worker to stop claiming")
    assert not worker.has_ended
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=40) == 1
    job.refresh_from_db()
    assert (job.status, job.attempt, job.attempts.get().outcome) == ("READY", 0, "interrupted")


def test_near_the_end_of_its_time_a_job_is_pressed_at_each_query(start_worker: StartWorker) -> None:
    job = interrupted_tasks.span.enqueue(seconds=60)
    worker = start_worker("--shutdown-timeout", "6")  # of which the last quarter is left for that
    wait_for(lambda: Span.objects.exists(), what="the job to begin")
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=40) == 0, "it was ended, not cut"
    job.refresh_from_db()
    assert (job.status, job.attempt, job.attempts.get().outcome) == ("READY", 0, "interrupted")


def test_a_job_that_may_start_once_is_dead_when_it_is_cut_and_goes_back_when_it_ends_itself(
    start_worker: StartWorker,
) -> None:
    cut = interrupted_tasks.once_for.enqueue(60)
    pressed = interrupted_tasks.once_for.enqueue(60, how="queries")
    agreed = interrupted_tasks.once_for.enqueue(60, how="looks")
    worker = start_worker("--shutdown-timeout", "3")
    wait_for(lambda: Effect.objects.count() == 3, what="all to begin")
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=40) == 1
    for job in (cut, pressed, agreed):
        job.refresh_from_db()
        assert job.attempts.get().outcome == "interrupted"
    for job in (cut, pressed):
        assert (job.status, job.attempt) == ("DEAD", 1)
        assert "max_attempts=1 allows no second start" in job.reason
    assert (agreed.status, agreed.attempt) == ("READY", 0)


# --- cancel from outside


ENDINGS = ["retry", "snooze", "failure", "success"]


def test_a_cancelled_job_never_comes_back_and_a_success_wins(start_worker: StartWorker, tmp_path: Path) -> None:
    jobs = {how: interrupted_tasks.after_gate.enqueue(str(tmp_path), how, how) for how in ENDINGS}
    start_worker(settings={**QUICK, "LISTEN": "off"})
    for how in ENDINGS:
        wait_at_gate(tmp_path, how)
    asked = lifecycle.cancel("default", [job.pk for job in jobs.values()], reason="not needed").asked
    assert len(asked) == 4
    for how in ENDINGS:
        open_gate(tmp_path, how)
    wait_for(lambda: not CancelRequest.objects.exists(), what="the requests to be honoured")
    for how, job in jobs.items():
        job.refresh_from_db()
        assert job.status == ("SUCCEEDED" if how == "success" else "CANCELLED"), how
        assert Effect.objects.filter(job_id=job.pk).count() == 1, "it was not started again"
        if how != "success":
            assert job.reason == "not needed"


def test_a_running_job_is_cancelled_whatever_it_does(start_worker: StartWorker, tmp_path: Path) -> None:
    jobs = {how: interrupted_tasks.for_long.enqueue(how=how) for how in ("loop", "query", "queries", "looks")}
    jobs["async"] = interrupted_tasks.for_long_async.enqueue(str(tmp_path))
    start_worker(settings={**QUICK, "LISTEN": "off"})
    wait_for(lambda: Effect.objects.count() == 5, what="all to begin")
    lifecycle.cancel("default", [job.pk for job in jobs.values()], reason="not needed")
    wait_for(lambda: Job.objects.filter(status="CANCELLED").count() == 5, what="their end")
    for how, job in jobs.items():
        job.refresh_from_db()
        assert (job.reason, job.attempts.get().outcome) == ("not needed", "cancelled"), how


def test_a_cancelled_job_of_a_killed_worker_is_not_run_again(start_worker: StartWorker) -> None:
    job = tasks.slow.enqueue(60)
    settings = {**QUICK, "LEASE_SECONDS": 3}
    victim = start_worker(settings=settings)
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    victim.send(signal.SIGSTOP)
    lifecycle.cancel("default", [job.pk], reason="not needed")
    victim.kill()
    start_worker(settings=settings)
    wait_for(lambda: Job.objects.filter(pk=job.pk).exclude(status="RUNNING").exists(), what="the rescue")
    job.refresh_from_db()
    assert (job.status, job.reason, job.attempts.get().outcome) == ("CANCELLED", "not needed", "lost")
    assert Effect.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_asked_to_stop_as_it_registers_signs_off(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_process.Worker(using="default", queues=QueueOrder(), threads=1)
    register = worker._register

    def register_and_stop() -> None:
        register()
        worker.request_stop()

    monkeypatch.setattr(worker, "_register", register_and_stop)
    assert worker.run() == 0
    assert not Worker.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_asked_to_stop_before_it_begins_has_stopped_cleanly() -> None:
    worker = worker_process.Worker(using="default", queues=QueueOrder(), threads=1)
    worker.request_stop()
    assert worker.run() == 0
    assert not Worker.objects.exists()
