"""Jobs that break what they touch: the fleet goes on, the neighbours end well, the history says what happened."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db.models.functions import Now

from django_reliable_jobs.models import Attempt, Job, Worker
from django_reliable_jobs.registry import Task
from tests import hostile_tasks, interrupted_tasks, tasks
from tests.actors import wait_for
from tests.bad_rows import refused_row
from tests.gates import open_gate, wait_at_gate
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

LEASE = {"LEASE_SECONDS": 3, "POLL_SECONDS": 0.2}

# How it is hostile, and what its attempts say.
FAIL = {
    "SystemExit": ("SystemExit", "3"),
    "KeyboardInterrupt": ("KeyboardInterrupt", ""),
    "GeneratorExit": ("GeneratorExit", ""),
    "leaves a transaction open": ("RuntimeError", "left a transaction open on default; it was rolled back"),
    "leaves a raw transaction open": ("RuntimeError", "left a transaction open on default; it was rolled back"),
    "turns autocommit off": ("RuntimeError", "left a transaction open on default; it was rolled back"),
    "raises the unspeakable": ("tests.hostile_tasks._Unspeakable", "(its __str__ raised RuntimeError)"),
    "raises NUL": ("ValueError", "a\ufffdb \ufffd"),
    "raises a novel": ("ValueError", "characters cut"),
    "ends its session": ("django.db.utils.OperationalError", "terminating connection due to administrator command"),
    "breaks its transaction": ("django.db.utils.InternalError", "current transaction is aborted"),
}
END = {
    "returns no JSON": "a set",
    "returns a generator": "generator",
    "returns NaN": "NaN",
    "returns too much": "300002 bytes",
}
SUCCEED = ["closes the connection", "closes all connections", "leaves a thread", "changes the context"]


def test_hostile_jobs_end_as_their_history_tells_and_stop_no_other(start_worker: StartWorker, tmp_path: Path) -> None:
    jobs = {}
    for how in (*FAIL, *END, *SUCCEED):
        jobs[how] = hostile_tasks.hostile.enqueue(how)
        tasks.effect.enqueue(f"beside: {how}")
    worker = start_worker("--threads", "4")
    wait_for(lambda: not Job.objects.exclude(status__in=["SUCCEEDED", "DEAD"]).exists(), what="all to end")
    for how, (error_class, message) in FAIL.items():
        job = Job.objects.get(pk=jobs[how].pk)
        assert (job.status, job.attempt) == ("DEAD", 2), how
        for attempt in job.attempts.all():
            assert (attempt.outcome, attempt.error_class) == ("failed", error_class), how
            assert message in attempt.error_message, how
    for how, message in END.items():
        job = Job.objects.get(pk=jobs[how].pk)
        assert (job.status, job.attempt) == ("DEAD", 1), "a second attempt would return the same"
        assert message in job.reason, how
    assert Job.objects.filter(pk__in=[jobs[how].pk for how in SUCCEED], status="SUCCEEDED").count() == len(SUCCEED)
    assert not Effect.objects.filter(name__in=["left open", "lost with its connection"]).exists()
    beside = Effect.objects.filter(name__startswith="beside")
    assert beside.count() == len(jobs)
    assert not Attempt.objects.filter(outcome="lost").exists()
    assert_all_threads_work(4, tmp_path)
    assert hostile_tasks.tint_seen.enqueue().wait(timeout=20) == "none", "what one job sets, the next does not see"
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0, "a thread that was left behind does not hold the process"


def assert_all_threads_work(threads: int, folder: Path) -> None:
    names = [f"thread {number}" for number in range(threads)]
    for name in names:
        interrupted_tasks.after_gate.enqueue(str(folder), name)
    for name in names:
        wait_at_gate(folder, name)
    for name in names:
        open_gate(folder, name)
    assert Effect.objects.filter(name__startswith="thread").values("thread").distinct().count() == threads


HOSTILE_IN_TRANSACTION = [
    "SystemExit",
    "closes the connection",
    "closes all connections",
    "leaves a transaction open",
    "turns autocommit off",
    "returns no JSON",
    "ends its session",
    "breaks its transaction",
]


def test_a_hostile_atomic_job_writes_nothing(start_worker: StartWorker) -> None:
    jobs = [hostile_tasks.hostile_atomic.enqueue(how) for how in HOSTILE_IN_TRANSACTION]
    raw = hostile_tasks.hostile_atomic.enqueue("leaves a raw transaction open")  # inside ours: it is none of its own
    late = hostile_tasks.hostile_atomic.enqueue("fails after its commit")  # which nothing can take back
    worker = start_worker("--burst")
    assert worker.wait() == 0
    for job, how in zip(jobs, HOSTILE_IN_TRANSACTION, strict=True):
        job.refresh_from_db()
        assert job.status == "DEAD", how
        assert job.attempts.get().outcome == "failed", how
        assert not Effect.objects.filter(job_id=job.pk).exists(), how
    for job in (raw, late):
        job.refresh_from_db()
    assert (late.status, late.attempts.count(), Effect.objects.filter(job_id=late.pk).count()) == ("SUCCEEDED", 0, 1)
    assert f"job {late.pk} has succeeded; a hook that was to follow its COMMIT failed" in worker.output
    assert (raw.status, Effect.objects.filter(job_id=raw.pk).count()) == ("SUCCEEDED", 2)


def test_a_coroutine_that_raises_what_ends_a_program_ends_its_job_only(start_worker: StartWorker) -> None:
    jobs = [hostile_tasks.hostile_async.enqueue(how) for how in ("SystemExit", "KeyboardInterrupt", "GeneratorExit")]
    after = tasks.asynchronous.using(priority=-1).enqueue("after")
    assert start_worker("--burst", "--threads", "1").wait() == 0
    assert [job.attempts.get().error_class for job in jobs] == ["SystemExit", "KeyboardInterrupt", "GeneratorExit"]
    after.refresh_from_db()
    assert after.status == "SUCCEEDED"


def test_a_job_that_takes_all_memory_fails_and_the_process_goes_on(start_worker: StartWorker) -> None:
    greedy = hostile_tasks.hostile.enqueue("allocates")
    after = tasks.effect.using(priority=-1).enqueue_many([{"name": str(number)} for number in range(20)])
    worker = start_worker("--burst", "--threads", "2")
    assert worker.wait() == 0, worker.output
    greedy.refresh_from_db()
    assert greedy.status == "DEAD"
    assert [(each.outcome, each.error_class) for each in greedy.attempts.all()] == [("failed", "MemoryError")] * 2
    assert Job.objects.filter(pk__in=[job.pk for job in after], status="SUCCEEDED").count() == 20


def test_a_job_that_signals_its_own_worker_ends_and_the_worker_stops_cleanly(start_worker: StartWorker) -> None:
    job = hostile_tasks.hostile.enqueue("stops its worker")
    assert start_worker().wait(timeout=20) == 0
    job.refresh_from_db()
    assert (job.status, job.attempts.count()) == ("SUCCEEDED", 0)


@pytest.mark.parametrize("task", [hostile_tasks.hostile, hostile_tasks.hostile_atomic], ids=lambda task: task.name)
def test_a_job_that_forks_leaves_no_second_worker_behind(start_worker: StartWorker, task: Task[..., Any]) -> None:
    job = task.enqueue("forks")
    worker = start_worker("--threads", "1")
    job.wait(timeout=20)
    wait_for(lambda: all(is_zombie(child) for child in psutil.Process(worker.pid).children()), what="the child to end")
    assert tasks.effect.enqueue("after").wait(timeout=20) == "after"
    assert (Job.objects.get(pk=job.pk).claims, Attempt.objects.count()) == (1, 0)


def is_zombie(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_ZOMBIE


POISONS = ["segfault", "os._exit", "loop in C"]


def test_poison_takes_its_process_along_and_no_neighbour_twice(start_worker: StartWorker, tmp_path: Path) -> None:
    settings = {**LEASE, "MAX_LOSSES": 2}
    tasks.nothing.enqueue_many([{}] * 3_000)  # what makes the worker prefetch
    # It gives nothing back, and claims far ahead however slow the machine is.
    patient = {"TESTS_CONSTANTS": json.dumps({"worker.STUCK_SECONDS": 1e9, "intake.AHEAD_SECONDS": 2.0})}
    poisons = [hostile_tasks.poison.enqueue(how, str(tmp_path)) for how in POISONS]
    neighbours = tasks.effect.enqueue_many([{"name": str(number)} for number in range(100)])
    worker = start_worker("--threads", "1", settings=settings, environment=patient)
    wait_at_gate(tmp_path, "segfault")
    running = Job.objects.filter(status="RUNNING")
    wait_for(lambda: running.count() == 103, what="the neighbours to be claimed with it")
    for how in POISONS:
        open_gate(tmp_path, how)
    unended = Job.objects.exclude(status__in=["SUCCEEDED", "DEAD"])
    starts = 1
    while unended.exists():
        wait_for(lambda: not unended.exists() or is_gone(worker), what="the end of all, or of the worker")  # noqa: B023
        if unended.exists():
            worker.kill()
            worker, starts = start_worker("--threads", "1", settings=settings, environment=patient), starts + 1

    assert starts == 5, "all together, each poison alone, the rest"
    for poison in poisons:
        poison.refresh_from_db()
        assert (poison.status, poison.losses, poison.attempt) == ("DEAD", 2, 0)
        assert "2 workers in a row were lost running this job" in poison.reason
        assert [attempt.outcome for attempt in poison.attempts.all()] == ["lost", "lost"]
    for job in Job.objects.filter(pk__in=[each.pk for each in neighbours]):
        assert (job.status, job.attempt, job.claims, job.losses) == ("SUCCEEDED", 1, 2, 0)
        assert "its lease ran out" in job.attempts.get().error_message
    assert Effect.objects.filter(pid=worker.pid).count() == 100


def is_gone(worker: WorkerProcess) -> bool:
    """Whether the worker has died or says nothing any more."""
    return worker.has_ended or Worker.objects.filter(pid=worker.pid, expires_at__lt=Now()).exists()


@pytest.mark.parametrize("refused", ["its success", "every end"])
def test_a_row_that_can_not_be_written_stops_no_other(start_worker: StartWorker, refused: str) -> None:
    jobs = tasks.effect.enqueue_many([{"name": str(number)} for number in range(50)])
    bad = jobs[25]
    with refused_row(bad.pk, "new.status = 'SUCCEEDED'" if refused == "its success" else "true"):
        worker = start_worker(settings={"POLL_SECONDS": 0.2})
        others = Job.objects.exclude(pk=bad.pk)
        wait_for(lambda: others.filter(status="SUCCEEDED").count() == 49, what="the others to be recorded")
        if refused == "its success":
            wait_for(lambda: Job.objects.filter(pk=bad.pk, status="DEAD").exists(), what="the bad one to be recorded")
        else:
            tasks.effect.enqueue("later").wait(timeout=20)
            bad.refresh_from_db()
            assert bad.status == "RUNNING"
    if refused == "its success":
        bad.refresh_from_db()
        assert "could not be recorded" in bad.reason
        assert "this row stays" in bad.attempts.get().error_message
    assert f"how job {bad.pk} ended can't be recorded" in worker.output
