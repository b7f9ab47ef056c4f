"""A worker that is stopped for longer than its lease, or killed: what it can still write, and who does its work."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import transaction
from django.db.models.functions import Now

from django_reliable_jobs.models import Attempt, Checkpoint, Job, Worker
from django_reliable_jobs.processes import worker as worker_process
from django_reliable_jobs.processes.queues import QueueOrder
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.gates import open_gate, wait_at_gate, wait_for_word
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

LEASE = {"LEASE_SECONDS": 3, "POLL_SECONDS": 0.2}
KINDS = ["finish", "checkpoint", "fenced", "atomic"]


def effects(job: Job) -> list[str]:
    return list(Effect.objects.filter(job_id=job.pk).values_list("name", flat=True))


def has_succeeded(*jobs: Job) -> bool:
    return Job.objects.filter(pk__in=[job.pk for job in jobs], status="SUCCEEDED").count() == len(jobs)


def is_free(job: Job) -> bool:
    """Return whether nobody holds the job's row."""
    with transaction.atomic():
        return Job.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=job.pk).exists()


def works_under_a_new_identity(worker: WorkerProcess, old: Worker) -> bool:
    row = worker.row
    return row is not None and row.pk != old.pk


def test_a_worker_that_slept_through_its_lease_writes_nothing_and_works_on_under_a_new_identity(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    folders = {kind: tmp_path / kind for kind in KINDS}
    for folder in folders.values():
        folder.mkdir()
    jobs = {kind: interrupted_tasks.write_after_gate.enqueue(kind, str(folders[kind])) for kind in KINDS[:3]}
    jobs["atomic"] = interrupted_tasks.write_atomically_after_gate.enqueue(str(folders["atomic"]))
    first = start_worker(settings=LEASE)
    old = first.row
    assert old is not None
    for folder in folders.values():
        wait_at_gate(folder)
    first.send(signal.SIGSTOP)
    second = start_worker(settings=LEASE)
    wait_for(lambda: has_succeeded(*jobs.values()), what="the second worker to do the jobs")
    before = {kind: Job.objects.filter(pk=job.pk).values().get() for kind, job in jobs.items()}

    for folder in folders.values():
        open_gate(folder)
    first.send(signal.SIGCONT)
    for kind in ("checkpoint", "fenced"):
        assert wait_for_word(folders[kind], "claim 1 caught") == "LeaseLost"
    wait_for_word(folders["finish"], "claim 1 done")
    wait_for(lambda: works_under_a_new_identity(first, old), what="the first worker to start over")
    second.kill()
    tasks.effect.enqueue("after").wait(timeout=20)

    assert Effect.objects.get(name="after").pid == first.pid, "the first worker goes on"
    for kind, job in jobs.items():
        assert Job.objects.filter(pk=job.pk).values().get() == before[kind], f"{kind}: the second worker's end stays"
        assert before[kind]["result"] == "claim 2"
        assert effects(job) == ([] if kind == "finish" else ["claim 2"]), f"{kind}: written by the second worker only"
        assert [attempt.outcome for attempt in job.attempts.all()] == ["lost"]
    assert Checkpoint.objects.get().value == "claim 2"
    assert Worker.objects.filter(pk=old.pk).count() == 0


def test_a_worker_that_is_told_twice_that_its_lease_was_lost_starts_over_once(transactional_db: None) -> None:
    worker = worker_process.Worker(using="default", queues=QueueOrder(), threads=1)
    old = worker.identity
    for _ in range(2):
        worker.lease_lost(old.id)
    worker.collect(timeout=0)
    assert Worker.objects.get().pk == worker.identity.id != old.id


def test_a_worker_that_is_stopped_behind_the_fence_holds_the_row_no_longer_than_a_lease(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    job = interrupted_tasks.stand_behind_fence.enqueue(str(tmp_path))
    first = start_worker(settings=LEASE)
    wait_at_gate(tmp_path)
    assert not is_free(job)
    first.send(signal.SIGSTOP)
    # A lease (by default it would be 30 s), and some for the server to end the session on a busy machine.
    wait_for(lambda: is_free(job), what="the row to be free", timeout=LEASE["LEASE_SECONDS"] + 15)
    start_worker(settings=LEASE)
    wait_for(lambda: has_succeeded(job), what="the second worker to do the job")
    open_gate(tmp_path)
    first.send(signal.SIGCONT)
    tasks.nothing.enqueue_many([{}] * 20)
    wait_for(lambda: not Job.objects.exclude(status="SUCCEEDED").exists(), what="both to go on")
    job.refresh_from_db()
    assert (job.result, effects(job), Checkpoint.objects.get().value) == ("claim 2", ["claim 2"], "claim 2")
    assert [attempt.outcome for attempt in job.attempts.all()] == ["lost"]


def test_a_checkpoint_whose_statement_runs_for_three_leases_commits_and_one_held_idle_does_not(
    start_worker: StartWorker,
) -> None:
    busy = interrupted_tasks.hold_fence_open.enqueue("busy", 9)
    idle = interrupted_tasks.hold_fence_open.enqueue("idle", 6)
    start_worker(settings=LEASE)
    start_worker(settings=LEASE)  # would rescue
    wait_for(lambda: idle_has_ended(idle) and has_succeeded(busy), what="both to end")
    busy.refresh_from_db(), idle.refresh_from_db()
    assert (busy.status, busy.claims, busy.losses, effects(busy)) == ("SUCCEEDED", 1, 0, ["busy"])
    assert busy.checkpoints.get().value == "busy"
    assert (idle.status, effects(idle), idle.checkpoints.count()) == ("DEAD", [], 0)
    attempt = idle.attempts.get()
    assert attempt.outcome == "failed"
    for text in (attempt.error_message, idle.reason):
        assert "sat idle for too long" in text
        assert "work first, save last" in text
    assert not Attempt.objects.filter(outcome="lost").exists()


def idle_has_ended(job: Job) -> bool:
    return Job.objects.filter(pk=job.pk, status="DEAD").exists()


def test_a_process_that_has_just_started_rescues_nobody(start_worker: StartWorker) -> None:
    job = tasks.slow.enqueue(60)
    victim = start_worker(settings=LEASE)
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    victim.kill()
    wait_for(lambda: lease_has_run_out(victim), what="the lease of the killed worker to run out")
    helper = start_worker(settings=LEASE)
    registered = helper.row
    assert registered is not None
    wait_for(lambda: Job.objects.filter(pk=job.pk, losses=1).exists(), what="the rescue")
    lost = job.attempts.get()
    assert (lost.finished_at - registered.started_at).total_seconds() >= 3, "a whole lease with the database in reach"


def lease_has_run_out(worker: WorkerProcess) -> bool:
    return Worker.objects.filter(pid=worker.pid, expires_at__lt=Now()).exists()


def run_and_kill(start_worker: StartWorker, jobs: int, kills: int, seed: int) -> None:
    """Kill one of three workers again and again while they do atomic and checkpointing jobs; start another for it."""
    chance, seconds = random.Random(seed), 0.02
    names = [str(number) for number in range(jobs // 2)]
    interrupted_tasks.atomic_effect.enqueue_many([{"name": name, "seconds": seconds} for name in names])
    interrupted_tasks.in_parts.enqueue_many([{"name": name, "seconds": seconds} for name in names])
    settings = {**LEASE, "MAX_LOSSES": 1000}
    fleet = [start_worker("--threads", "2", settings=settings) for _ in range(3)]
    unended = Job.objects.exclude(status="SUCCEEDED")
    for number, left in enumerate(sorted((chance.uniform(0.05, 1) * jobs for _ in range(kills)), reverse=True)):
        wait_for(lambda: hurry() and unended.count() <= left, what="some more jobs to end", timeout=120)  # noqa: B023
        # Most are killed at work; each fifth whatever it does, as one that starts.
        among = wait_for(lambda: at_work(fleet), what="a worker to work", timeout=60) if number % 5 else fleet
        victim = chance.choice(among)
        fleet.remove(victim)
        victim.kill()
        fleet.append(start_worker("--threads", "2", settings=settings, ready=False))
    wait_for(lambda: hurry() and not unended.exists(), what="all jobs to end", timeout=180 + kills)
    done = Counter(Effect.objects.values_list("name", flat=True))
    expected = {*names, *(f"{name}, part {part}" for name in names for part in range(3))}
    assert set(done) == expected, "nothing is lost"
    assert set(done.values()) == {1}, "each effect is there once"
    assert Attempt.objects.filter(outcome="lost").values("worker").distinct().count() > kills / 4, "killed at work"
    # Interrupted: on a busy machine a worker may not have renewed its lease in time, and ends its jobs before it does.
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"lost", "interrupted"}
    wait_for(lambda: all(worker.row for worker in fleet), what="the last workers to register", timeout=120)
    for worker in fleet:
        worker.send(signal.SIGTERM)
    assert [worker.wait(timeout=60) for worker in fleet] == [0, 0, 0], fleet[0].output
    assert not Job.objects.exclude(status="SUCCEEDED").exists()


def at_work(fleet: list[WorkerProcess]) -> list[WorkerProcess]:
    """Return the workers that hold running jobs."""
    holders = set(Job.objects.filter(status="RUNNING").values_list("worker_id", flat=True))
    return [worker for worker in fleet if (row := worker.row) is not None and row.pk in holders]


def hurry() -> bool:
    """Let jobs that wait because they lost their workers be due now."""
    Job.objects.filter(status="SCHEDULED").update(run_after=Now())
    return True


def test_workers_killed_at_random_lose_nothing_and_do_nothing_twice(start_worker: StartWorker) -> None:
    run_and_kill(start_worker, jobs=500, kills=20, seed=20)


@pytest.mark.heavy
def test_two_hundred_kills_over_five_thousand_jobs(start_worker: StartWorker) -> None:
    run_and_kill(start_worker, jobs=5000, kills=200, seed=200)
