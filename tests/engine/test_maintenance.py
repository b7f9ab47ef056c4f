"""What any process does for all: promote, rescue, honour cancel requests, resume, prune."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_reliable_jobs.engine import lifecycle, maintenance
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.models import Attempt, CancelRequest, Checkpoint, Job, Progress, Queue, Worker
from django_reliable_jobs.testing import run_jobs
from tests import tasks
from tests.bad_rows import refused_row
from tests.claims import claim, let_lease_run_out, port_of, row, succeed
from tests.factories import (
    CancelledJobFactory,
    CancelRequestFactory,
    DeadJobFactory,
    ExpiredWorkerFactory,
    LostWorkerFactory,
    ReadyJobFactory,
    RunningJobFactory,
    ScheduledJobFactory,
    SucceededJobFactory,
    WorkerFactory,
)
from tests.states import a_worker

pytestmark = pytest.mark.django_db


def due(**fields: Any) -> Job:
    return ScheduledJobFactory(run_after=timezone.now() - timedelta(seconds=1), **fields)


def losing(times: int, **options: Any) -> Job:
    """Let a job lose its worker so many times; return its row."""
    Job.objects.all().delete()
    job = tasks.nothing.enqueue()
    Job.objects.filter(pk=job.pk).update(**options)
    for _ in range(times):
        Job.objects.filter(pk=job.pk).update(status="READY")
        [claimed] = claim(a_worker(1))
        let_lease_run_out(claimed)
        assert maintenance.rescue("default", uniform=lambda: 0.5) == 1
    return row(job)


# --- promote


def test_due_jobs_become_ready_and_others_wait() -> None:
    job, later = due(), ScheduledJobFactory()
    assert maintenance.promote("default") == 1
    assert (row(job).status, row(later).status) == ("READY", "SCHEDULED")
    assert row(job).run_after == job.run_after  # its place in the line
    assert maintenance.promote("default") == 0


def test_promotion_goes_in_batches_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BATCH", 2)
    jobs = [ScheduledJobFactory(run_after=timezone.now() - timedelta(seconds=age)) for age in (1, 3, 2)]
    assert maintenance.promote("default") == 2
    assert [row(job).status for job in jobs] == ["SCHEDULED", "READY", "READY"]


# --- rescue


def test_the_jobs_of_a_worker_with_a_lease_are_left_alone() -> None:
    job = RunningJobFactory()
    assert maintenance.rescue("default") == 0
    assert row(job).status == "RUNNING"


def test_a_lost_job_goes_back_without_using_an_attempt_and_with_its_story() -> None:
    worker = ExpiredWorkerFactory(host="host-7", pid=4711)
    job = RunningJobFactory(worker_id=worker.pk)
    assert maintenance.rescue("default") == 1
    found = row(job)
    assert (found.status, found.attempt, found.claims, found.losses) == ("READY", 0, 1, 1)
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.number, attempt.worker) == ("lost", 1, "host-7:4711")
    assert "host-7, process 4711" in attempt.error_message
    assert f"last heartbeat {worker.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC" in attempt.error_message
    assert not Worker.objects.exists()


def test_a_worker_without_jobs_leaves_the_list() -> None:
    ExpiredWorkerFactory()
    LostWorkerFactory()
    alive = WorkerFactory()
    assert maintenance.rescue("default") == 0
    assert Worker.objects.get() == alive


def test_more_jobs_than_a_batch_are_rescued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "RESCUE_BATCH", 2)
    workers = [ExpiredWorkerFactory(), ExpiredWorkerFactory()]
    for number in range(9):
        RunningJobFactory(worker_id=workers[number % 2].pk)
    assert maintenance.rescue("default") == 9
    assert Job.objects.filter(status="READY").count() == 9
    assert not Worker.objects.exists()


def test_a_job_that_may_start_once_is_dead_when_lost_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    found = losing(1, max_attempts=1)
    assert (found.status, found.attempt) == ("DEAD", 1)
    assert "max_attempts=1" in found.reason
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == f"job {found.pk} ({found.task}) is dead: {found.reason}"


def test_a_job_that_goes_on_losing_its_workers_comes_back_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    assert losing(1).status == "READY"
    for losses, delay in ((2, 7.5), (3, 15), (4, 30)):
        before = timezone.now()
        found = losing(losses)
        assert (found.status, found.attempt, found.losses) == ("SCHEDULED", 0, losses)
        assert before < found.run_after - timedelta(seconds=delay) < timezone.now()
    assert "is dead" not in caplog.text


def test_the_last_loss_ends_it(settings: Any) -> None:
    settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "MAX_LOSSES": 3}
    assert losing(2).status == "SCHEDULED"
    found = losing(3)
    assert (found.status, found.losses) == ("DEAD", 3)
    assert "3 workers in a row were lost" in found.reason
    assert list(found.attempts.values_list("outcome", flat=True)) == ["lost"] * 3


def test_a_checkpoint_is_progress_so_that_earlier_losses_do_not_count() -> None:
    job = tasks.nothing.enqueue()
    for expected in (1, 2):
        Job.objects.filter(pk=job.pk).update(status="READY")
        [claimed] = claim(a_worker(1))
        let_lease_run_out(claimed)
        maintenance.rescue("default")
        assert row(job).losses == expected
    Job.objects.filter(pk=job.pk).update(status="READY")
    [claimed] = claim(a_worker(1))
    port_of(claimed).save("cursor", 1)
    let_lease_run_out(claimed)
    maintenance.rescue("default")
    assert row(job).losses == 1
    [again] = claim(a_worker(1))  # without a new checkpoint
    let_lease_run_out(again)
    maintenance.rescue("default")
    assert row(job).losses == 2


def test_a_lost_job_that_was_asked_to_cancel_is_cancelled() -> None:
    job = RunningJobFactory(worker_id=ExpiredWorkerFactory().pk)
    lifecycle.cancel("default", [job.pk], reason="not needed")
    assert maintenance.rescue("default") == 1
    assert (row(job).status, row(job).reason) == ("CANCELLED", "not needed")


def test_what_a_lost_job_names_for_its_death_is_enqueued() -> None:
    job = tasks.dies_and_is_buried.enqueue()
    [claimed] = claim(a_worker(1))
    let_lease_run_out(claimed)
    assert maintenance.rescue("default") == 1
    assert Job.objects.get(task="tests.tasks.bury").kwargs == {"job_id": job.pk}


def test_a_running_job_whose_worker_is_not_on_the_list_is_rescued_after_a_lease() -> None:
    old = RunningJobFactory(worker_id=5, started_at=timezone.now() - timedelta(seconds=31))
    young = RunningJobFactory(worker_id=6, started_at=timezone.now() - timedelta(seconds=20))
    assert maintenance.rescue("default") == 1
    assert (row(old).status, row(old).losses, row(young).status) == ("READY", 1, "RUNNING")
    assert not Worker.objects.exists()


def test_one_row_that_can_not_be_written_stops_no_other() -> None:
    worker = ExpiredWorkerFactory()
    jobs = [RunningJobFactory(worker_id=worker.pk) for _ in range(3)]
    with refused_row(jobs[1].pk):
        assert maintenance.rescue("default") == 2
        assert [row(job).status for job in jobs] == ["READY", "RUNNING", "READY"]
        assert Worker.objects.get().lost_at is not None
    assert maintenance.rescue("default") == 1
    assert not Worker.objects.exists()


# --- rescue of a process that was seen to die


def of_dead_worker(count: int) -> tuple[int, list[ClaimedJob]]:
    tasks.nothing.enqueue_many([{}] * count)
    worker_id = a_worker(1)
    return worker_id, claim(worker_id, count)


def test_only_what_had_started_counts_as_lost() -> None:
    worker_id, [started, waiting] = of_dead_worker(2)
    assert maintenance.rescue_dead("default", worker_id, started=[started.token], cause="killed by signal 9") == 2
    assert (row(started).status, row(started).losses, row(started).attempt) == ("READY", 1, 0)
    assert (row(waiting).status, row(waiting).losses, row(waiting).attempt) == ("READY", 0, 0)
    assert "killed by signal 9" in Attempt.objects.get().error_message
    assert not Worker.objects.exists()
    assert maintenance.rescue_dead("default", worker_id, started=[], cause="") == 0


def test_of_a_worker_that_was_declared_lost_before_it_died_any_job_may_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "RESCUE_BATCH", 1)
    worker_id, jobs = of_dead_worker(3)
    Worker.objects.filter(pk=worker_id).update(lost_at=timezone.now())  # the rescue could not take their rows yet
    assert maintenance.rescue_dead("default", worker_id, started=[], cause="its process exited with code 0") == 3
    for job in jobs:
        assert (row(job).status, row(job).losses, row(job).attempts.get().outcome) == ("READY", 1, "lost")


def test_more_jobs_of_a_dead_process_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "RESCUE_BATCH", 2)
    worker_id, _ = of_dead_worker(5)
    assert maintenance.rescue_dead("default", worker_id, started=[], cause="") == 5
    assert not Worker.objects.exists()


# --- the rest


def test_requests_to_cancel_what_is_at_rest_are_honoured() -> None:
    ready, ended, running = ReadyJobFactory(), SucceededJobFactory(), RunningJobFactory()
    for job in (ready, ended, running):
        CancelRequestFactory(job=job, reason="not needed")
    assert maintenance.honour_cancel_requests("default").requests == 2
    assert (row(ready).status, row(ready).reason) == ("CANCELLED", "not needed")
    assert (row(ended).status, row(running).status) == ("SUCCEEDED", "RUNNING")
    assert CancelRequest.objects.get().job_id == running.pk


def test_a_queue_resumes_when_its_moment_has_come() -> None:
    now = timezone.now()
    for name, resume_at in (("past", -1), ("future", 60)):
        Queue.objects.create(name=name, paused_at=now, resume_at=now + timedelta(seconds=resume_at))
    Queue.objects.create(name="for good", paused_at=now)
    assert maintenance.resume_queues("default") == 1
    assert Queue.objects.get(name="past").paused_at is None
    assert Queue.objects.filter(paused_at=None).count() == 1


def test_old_ended_jobs_are_pruned_with_all_that_belongs_to_them() -> None:
    old, recent = timezone.now() - timedelta(days=8), timezone.now() - timedelta(days=6)
    gone = [SucceededJobFactory(finished_at=old), CancelledJobFactory(finished_at=old)]
    kept = [SucceededJobFactory(finished_at=recent), DeadJobFactory(finished_at=old), ReadyJobFactory()]
    for job in gone:
        Attempt.objects.create(
            job=job, number=1, claim=1, outcome="failed", started_at=old, finished_at=old, worker="host:1"
        )
        Checkpoint.objects.create(job=job, run=1, name="cursor", value=1, token=1, saved_at=old)
        Progress.objects.create(token=job.pk, job=job, run=1, claim=1, done=1, told_at=old)
        CancelRequestFactory(job=job)
    assert maintenance.prune("default") == 2
    assert set(Job.objects.all()) == set(kept)
    assert set(Attempt.objects.values_list("job_id", flat=True)) == {kept[1].pk}
    assert not Checkpoint.objects.exists()
    assert not Progress.objects.exists()
    assert not CancelRequest.objects.exists()


def test_pruning_stops_after_so_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BATCH", 2)
    for _ in range(7):
        SucceededJobFactory(finished_at=timezone.now() - timedelta(days=8))
    assert maintenance.prune("default", batches=2) == 4
    assert maintenance.prune("default") == 3


def test_jobs_of_each_task_and_queue_are_pruned_and_none_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(task: str, queue_name: str, days: int) -> int:
        return SucceededJobFactory(
            task=task, queue_name=queue_name, finished_at=timezone.now() - timedelta(days=days)
        ).pk

    recent = [ended("a", "default", 1), ended("c", "mail", 1)]
    late = [ended("a", "default", 8), ended("a", "default", 9), ended("b", "mail", 10), ended("c", "mail", 8)]
    oldest = [ended("b", "default", 12), ended("b", "default", 11)]
    monkeypatch.setattr(maintenance, "BATCH", 2)
    assert maintenance.prune("default", batches=1) == 2
    assert set(Job.objects.values_list("pk", flat=True)) == {*recent, *late}, oldest
    assert maintenance.prune("default") == 4
    assert set(Job.objects.values_list("pk", flat=True)) == {*recent}


def test_a_rescued_job_runs_again() -> None:
    RunningJobFactory(worker_id=ExpiredWorkerFactory().pk)
    maintenance.rescue("default")
    [job] = run_jobs()
    assert (job.status, job.losses, job.claims) == ("SUCCEEDED", 0, 2)
    assert not succeed(ClaimedJob(*[job.pk, 1, *[None] * (len(ClaimedJob._fields) - 2)]))
