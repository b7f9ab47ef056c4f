"""The supervisor: real children, really killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from django.db import connection, transaction

from django_reliable_jobs.models import Attempt, Job, Worker
from django_reliable_jobs.processes.supervisor import Supervisor
from tests import hostile_tasks, interrupted_tasks, tasks
from tests.actors import wait_for
from tests.gates import open_gate, wait_at_gate
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def pids() -> set[int]:
    return set(Worker.objects.filter(lost_at=None).values_list("pid", flat=True))


def start_two(start_worker: StartWorker, *arguments: str, **options: object) -> WorkerProcess:
    supervisor = start_worker("--processes", "2", *arguments, ready=False, **options)
    wait_for(lambda: len(pids()) == 2 or supervisor.has_ended, what="two children")
    assert not supervisor.has_ended, supervisor.output
    return supervisor


def test_children_share_the_work_and_a_burst_ends(start_worker: StartWorker, tmp_path: Path) -> None:
    for name in ("one", "another"):  # a child that stands at a gate takes nothing else
        interrupted_tasks.after_gate.using(priority=1).enqueue(str(tmp_path), name)
    tasks.effect.enqueue_many([{"name": str(number)} for number in range(2000)])
    supervisor = start_worker("--processes", "2", "--threads", "1", "--burst", ready=False)
    for name in ("one", "another"):
        wait_at_gate(tmp_path, name)
    for name in ("one", "another"):
        open_gate(tmp_path, name)
    assert supervisor.wait() == 0, supervisor.output
    assert Job.objects.filter(status="SUCCEEDED").count() == 2002
    assert len(set(Effect.objects.values_list("pid", flat=True))) == 2
    assert not Worker.objects.exists()


def test_the_jobs_of_a_killed_child_are_taken_back_at_once(start_worker: StartWorker) -> None:
    supervisor = start_two(start_worker, "--threads", "1")
    job = tasks.slow.enqueue(60)
    victim = wait_for(lambda: Effect.objects.first(), what="the job to begin").pid
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: Attempt.objects.filter(outcome="lost").exists(), timeout=25, what="the rescue")  # a lease is 30 s
    attempt = job.attempts.get()
    assert "SIGKILL" in attempt.error_message
    wait_for(lambda: len(pids() - {victim}) == 2, what="another child in its place")
    assert not supervisor.has_ended


def test_what_a_killed_child_had_not_started_is_not_counted(start_worker: StartWorker) -> None:
    tasks.nothing.enqueue_many([{}] * 300)
    start_two(start_worker, "--threads", "1", settings={"MAX_LOSSES": 3})
    wait_for(lambda: Job.objects.filter(status="SUCCEEDED").count() == 300, what="the batches to grow")
    tasks.nothing.enqueue_many([{}] * 50)
    poison = tasks.dies_of_a_signal.enqueue()
    after = [job.pk for job in tasks.nothing.enqueue_many([{}] * 100)]
    wait_for(lambda: not Job.objects.filter(pk__in=after).exclude(status="SUCCEEDED").exists(), what="the neighbours")
    wait_for(lambda: Job.objects.filter(pk=poison.pk, status="DEAD").exists(), timeout=90, what="the end of the poison")
    assert not Attempt.objects.filter(job__in=after).exists()
    assert list(poison.attempts.values_list("outcome", flat=True)) == ["lost"] * 3
    assert "SIGSEGV" in poison.attempts.first().error_message


def test_a_job_that_a_killed_child_had_run_but_not_recorded_is_a_loss(start_worker: StartWorker) -> None:
    start_two(start_worker, "--threads", "1")
    job = tasks.slow.enqueue(0.5)
    victim = wait_for(lambda: Effect.objects.first(), what="the job to begin").pid
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)  # so that its success can't be recorded
        wait_for(lambda: Effect.objects.filter(name="slow ends").exists(), what="the job to end")
        wait_for(lambda: writer_is_idle(), what="the report of its end")
        os.kill(victim, signal.SIGSTOP)
        # What it had sent a moment before is to find the row locked.
        wait_for(lambda: all(nobody_is_active() for _ in range(20)), what="the last of what it sent")
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: Job.objects.filter(pk=job.pk, status="SUCCEEDED").exists(), what="the second run")
    assert list(job.attempts.values_list("claim", "outcome")) == [(1, "lost")]


def writer_is_idle() -> bool:
    """Return whether the session that wrote the last effect has nothing more to do."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees one picture of the sessions otherwise
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'"
            " AND query LIKE 'INSERT INTO \"tests_effect\"%%'"
        )
        return bool(cursor.fetchone()[0])


def nobody_is_active() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'"
            " AND pid <> pg_backend_pid()"
        )
        return cursor.fetchone() is None


def test_a_child_that_hangs_is_replaced(start_worker: StartWorker) -> None:
    start_two(start_worker, "--threads", "1", settings={"LEASE_SECONDS": 2})
    job = tasks.slow_once.enqueue(3)
    victim = wait_for(lambda: Effect.objects.first(), what="the job to begin").pid
    os.kill(victim, signal.SIGSTOP)
    wait_for(lambda: Job.objects.filter(pk=job.pk, status="SUCCEEDED").exists(), timeout=40, what="the successor")
    wait_for(lambda: not psutil.pid_exists(victim) and len(pids()) == 2, what="another child in its place")


def test_a_child_whose_job_holds_the_interpreter_is_replaced(start_worker: StartWorker, tmp_path: Path) -> None:
    supervisor = start_two(start_worker, "--threads", "1", settings={"LEASE_SECONDS": 2, "MAX_LOSSES": 1})
    job = hostile_tasks.poison.enqueue("loop in C", str(tmp_path))
    wait_at_gate(tmp_path, "loop in C")
    before = pids()
    open_gate(tmp_path, "loop in C")
    wait_for(lambda: Job.objects.filter(pk=job.pk, status="DEAD").exists(), timeout=60, what="the loss")
    assert job.attempts.get().outcome == "lost", "by its lease, or sooner"
    wait_for(lambda: len(pids() - before) == 1 and len(pids()) == 2, timeout=60, what="another child in its place")
    assert "is killed: its loop or its heartbeat did not turn any more" in supervisor.output
    assert tasks.effect.enqueue("after").wait(timeout=20) == "after"


def test_a_child_that_dies_at_once_is_started_again_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "django_reliable_jobs")
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    supervisor = Supervisor(commands={"default": command}, processes=1, shutdown_timeout=1)
    running = threading.Thread(target=supervisor.run)
    running.start()
    try:
        wait_for(lambda: caplog.text.count("worker process ended") >= 3, what="three deaths")
    finally:
        supervisor.request_stop()
        running.join()
    ends = [record.getMessage() for record in caplog.records if "worker process ended" in record.getMessage()]
    assert ends[:3] == [
        f"worker process ended: its process exited with code 3; the next one starts in {pause} s"
        for pause in ("0.5", "1.0", "2.0")
    ]


def test_a_child_of_a_burst_that_gave_up_its_database_is_not_started_again(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from django_reliable_jobs.processes.vitals import Vitals;"
        f"Path({str(tmp_path)!r}, 'starts').open('a').write('one ');"
        "Vitals.of_this_process().gave_up(); raise SystemExit(1)"
    )
    command = [sys.executable, "-c", program]
    supervisor = Supervisor(commands={"default": command}, processes=1, shutdown_timeout=1, burst=True)
    assert supervisor.run() == 1
    assert (tmp_path / "starts").read_text() == "one "


def test_a_stop_is_passed_on(start_worker: StartWorker) -> None:
    supervisor = start_two(start_worker)
    job = tasks.slow.enqueue(1)
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait(timeout=30) == 0, supervisor.output
    job.refresh_from_db()
    assert job.status == "SUCCEEDED"
    assert not Worker.objects.exists()


def test_children_end_with_a_supervisor_that_was_killed(start_worker: StartWorker) -> None:
    supervisor = start_two(start_worker)
    children = pids()
    supervisor.send(signal.SIGKILL)
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in children), what="the children to end")
    assert not Worker.objects.exists()


def test_a_process_is_recycled_after_so_many_jobs(start_worker: StartWorker) -> None:
    worker = start_worker("--max-jobs", "10", "--threads", "2")
    tasks.effect.enqueue_many([{"name": str(number)} for number in range(30)])
    assert worker.wait(timeout=30) == 75
    assert Effect.objects.count() == 10
    assert Job.objects.filter(status="READY").count() == 20


def test_a_recycled_child_is_followed_by_another(start_worker: StartWorker) -> None:
    start_two(start_worker, "--max-jobs", "20")
    tasks.effect.enqueue_many([{"name": str(number)} for number in range(100)])
    wait_for(lambda: Effect.objects.count() == 100, what="all jobs")
    assert len(set(Effect.objects.values_list("pid", flat=True))) >= 5


def test_a_process_that_has_grown_is_recycled_after_its_jobs(start_worker: StartWorker) -> None:
    worker = start_worker("--max-memory", "200M", "--threads", "2")
    job = tasks.grows.enqueue(300)
    assert worker.wait(timeout=30) == 75
    assert "max-memory" in worker.output
    job.refresh_from_db()
    assert job.status == "SUCCEEDED"


def test_a_child_that_grows_without_bound_is_killed_and_the_history_says_why(start_worker: StartWorker) -> None:
    supervisor = start_two(start_worker, "--max-memory", "150M", "--threads", "1")
    job = tasks.grows.using(priority=1).enqueue(400, seconds=30)
    wait_for(lambda: job.attempts.exists(), timeout=30, what="the loss")
    assert "--max-memory" in job.attempts.first().error_message
    assert not supervisor.has_ended
