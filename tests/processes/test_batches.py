"""Long jobs in real workers: killed, stopped, replaced, cancelled; each row is written once all the same."""

from __future__ import annotations

import random
import signal
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs.engine import lifecycle, maintenance, revival
from django_reliable_jobs.models import Checkpoint, Job, Progress, Worker
from tests import batch_tasks
from tests.actors import wait_for
from tests.gates import open_gate, wait_at_gate, wait_for_word
from tests.items import a_context, state
from tests.models import Tally
from tests.processes.test_fencing import LEASE, StartWorker, has_succeeded, hurry

NAME = "tests.Tally"


def some_tallies(count: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO tests_tally (touched) SELECT 0 FROM generate_series(1, %s)", [count])


def touched() -> dict[int, int]:
    """How many rows were touched how often."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT touched, count(*) FROM tests_tally GROUP BY touched")
        return dict(cursor.fetchall())


def done() -> int:
    """How many rows the checkpoint says are done."""
    with suppress(Checkpoint.DoesNotExist):
        return int(state(NAME)["done"])
    return 0


def worker_that_runs(job: Job) -> Worker:
    def find() -> Worker | None:
        hurry()
        holder = Job.objects.filter(pk=job.pk, status="RUNNING").values("worker_id")
        return Worker.objects.filter(pk__in=holder, lost_at=None).first()

    found = wait_for(find, timeout=60, what="a worker to run the job")
    assert found is not None
    return found


def is_taken_from(victim: Worker, job: Job) -> bool:
    """Take the job back; not yet, while the server has not noticed that the killed process's transaction is over."""
    maintenance.rescue_dead("default", victim.pk, started=None, cause="killed")
    return not Job.objects.filter(pk=job.pk, status="RUNNING", worker_id=victim.pk).exists()


def kill_at_random(start_worker: StartWorker, *, rows: int, kills: int, size: int, seed: int) -> None:
    """Kill the process that runs the job, again and again, while it goes through the rows."""
    chance = random.Random(seed)
    some_tallies(rows)
    job = batch_tasks.touch_all.enqueue(size=size, pause=0.002)
    options: dict[str, Any] = {"settings": {"MAX_LOSSES": 10_000}, "ready": False}
    fleet = [start_worker(**options) for _ in range(3)]
    for mark in sorted(chance.uniform(0, 0.97) * rows for _ in range(kills)):
        wait_for(lambda: done() >= mark, timeout=60, what="some more rows to be done")  # noqa: B023
        victim = worker_that_runs(job)
        process = next(each for each in fleet if each.pid == victim.pid)
        process.kill()
        # What a supervisor does at once for a child that it saw die, and the others when its lease has run out.
        wait_for(lambda: is_taken_from(victim, job), what="the job to be taken back")  # noqa: B023
        fleet.remove(process)
        fleet.append(start_worker(**options))
    wait_for(lambda: hurry() and has_succeeded(job), timeout=120, what="the job to end")
    job.refresh_from_db()
    assert touched() == {1: rows}, "each row once"
    assert job.result == {"done": rows, "skipped": 0}
    assert list(job.attempts.values_list("outcome", flat=True)) == ["lost"] * kills
    assert (job.attempt, job.claims) == (1, kills + 1)
    progress = Progress.objects.get(token=job.token)
    assert (progress.done, progress.total, progress.claim) == (rows, rows, kills + 1)


def test_a_job_that_is_killed_ten_times_touches_each_of_50_000_rows_once(start_worker: StartWorker) -> None:
    kill_at_random(start_worker, rows=50_000, kills=10, size=250, seed=7)


@pytest.mark.heavy
def test_a_job_that_is_killed_fifty_times_touches_each_of_1_000_000_rows_once(start_worker: StartWorker) -> None:
    kill_at_random(start_worker, rows=1_000_000, kills=50, size=1000, seed=50)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_attempt_that_was_stopped_and_replaced_writes_no_batch_and_no_checkpoint(
    start_worker: StartWorker, tmp_path: Path, when: str
) -> None:
    some_tallies(50)
    job = batch_tasks.touch_at_gate.enqueue(str(tmp_path), when)
    first = start_worker(settings=LEASE)
    wait_at_gate(tmp_path)
    first.send(signal.SIGSTOP)
    start_worker(settings=LEASE)
    # After its writes the stopped one holds rows, until the server ends its session.
    wait_for(lambda: has_succeeded(job), what="the second worker to do the job", timeout=40)
    before = Checkpoint.objects.values().get()
    open_gate(tmp_path)
    first.send(signal.SIGCONT)
    word = wait_for_word(tmp_path, "claim 1 caught")
    if when == "before":
        assert word in ("LeaseLost", "OperationalError")
    assert touched() == {1: 50}
    assert Checkpoint.objects.values().get() == before
    assert before["value"]["done"] == 50
    job.refresh_from_db()
    assert (job.status, job.result) == ("SUCCEEDED", "claim 2")


def cut_every_other_session() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_connections_that_are_cut_in_the_middle_of_a_batch_cost_an_attempt_and_no_row(
    start_worker: StartWorker,
) -> None:
    some_tallies(120)
    job = batch_tasks.touch_all.enqueue(size=1, pause=0.01)
    start_worker()
    for mark in (10, 35, 60, 85):
        wait_for(lambda: done() >= mark, what="some more rows to be done")  # noqa: B023
        cut_every_other_session()
    wait_for(lambda: hurry() and has_succeeded(job), what="the job to end")
    job.refresh_from_db()
    assert touched() == {1: 120}
    assert job.result == {"done": 120, "skipped": 0}
    assert set(job.attempts.values_list("outcome", flat=True)) == {"failed"}


def test_at_a_deploy_the_job_stops_between_two_batches_and_goes_on_elsewhere(start_worker: StartWorker) -> None:
    some_tallies(500)
    job = batch_tasks.touch_all.enqueue(size=1, pause=0.02)
    first = start_worker()
    wait_for(lambda: done() > 10, what="some batches")
    first.send(signal.SIGTERM)
    assert first.wait() == 0, first.output
    stopped_at = done()
    job.refresh_from_db()
    assert (job.status, job.attempt) == ("READY", 0), "at once, and no attempt used"
    assert [each.outcome for each in job.attempts.all()] == ["interrupted"]
    assert 10 < stopped_at < 500
    assert Progress.objects.get(token=job.token).done == stopped_at, "as far as it had come"
    Job.objects.filter(pk=job.pk).update(kwargs={"size": 50})
    start_worker()
    wait_for(lambda: has_succeeded(job), what="the second worker to go on")
    assert touched() == {1: 500}


def test_a_cancelled_job_stops_between_two_batches_and_goes_on_when_it_is_retried(start_worker: StartWorker) -> None:
    some_tallies(500)
    job = batch_tasks.touch_all.enqueue(size=1, pause=0.02)
    start_worker()
    wait_for(lambda: done() > 5, what="some batches")
    lifecycle.cancel("default", [job.pk], reason="not now")
    wait_for(lambda: Job.objects.filter(pk=job.pk, status="CANCELLED").exists(), what="the job to stop")
    assert touched() == {0: 500 - done(), 1: done()}
    assert 0 < done() < 500
    Job.objects.filter(pk=job.pk).update(kwargs={"size": 50})
    revival.revive("default", [job.pk])
    wait_for(lambda: has_succeeded(job), what="the job to go on")
    assert touched() == {1: 500}


def peaks_of(rows: int, size: int, visit: Callable[[object], object]) -> list[int]:
    """Return the most memory in use during each batch, over what was in use before the first."""
    some_tallies(rows)
    peaks = []
    tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        for batch in a_context().batches(Tally.objects.all(), size=size):
            tracemalloc.reset_peak()
            with batch:
                for tally in batch:
                    visit(tally)
            peaks.append(tracemalloc.get_traced_memory()[1] - begin)
    finally:
        tracemalloc.stop()
    return peaks


@pytest.mark.django_db(transaction=True)
def test_memory_stays_within_one_batch() -> None:
    peaks = peaks_of(20_000, 500, id)
    assert len(peaks) == 40
    assert max(peaks[1:]) < 1.3 * peaks[0]


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_memory_stays_within_one_batch_over_a_million_rows() -> None:
    peaks = peaks_of(1_000_000, 10_000, id)
    assert len(peaks) == 100
    assert max(peaks[1:]) < 1.3 * peaks[0]
