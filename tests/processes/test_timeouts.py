"""A task's timeout: what ends an attempt, what it can't hit, and what is left when a job ignores it."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from django_reliable_jobs.models import Attempt, Job
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.gates import open_gate
from tests.models import Effect
from tests.processes.test_hostile_jobs import assert_all_threads_work
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

TIMEOUT = "django_reliable_jobs.exceptions.JobTimeout"


SOONER = {"deadlines.INTERRUPT_AFTER": 1.0, "deadlines.CUT_AFTER": 2.0, "deadlines.RECYCLE_AFTER": 4.0}


def unended() -> bool:
    return Job.objects.exclude(status__in=["SUCCEEDED", "DEAD"]).exists()


def assert_timed_out(job: Job) -> None:
    job.refresh_from_db()
    assert (job.status, job.attempt) == ("DEAD", 1), job.kwargs
    attempt = job.attempts.get()
    assert (attempt.outcome, attempt.error_class) == ("failed", TIMEOUT), job.kwargs
    assert "longer than its task's timeout" in attempt.error_message


def test_whatever_a_task_does_its_timeout_ends_it(start_worker: StartWorker, tmp_path: Path) -> None:
    ways = ["loop", "query", "queries", "swallow queries"]
    jobs = [interrupted_tasks.too_long.enqueue(how=how) for how in ways]
    folders = {how: tmp_path / how for how in ("sleep", "slow to clean up", "query")}
    for how, folder in folders.items():
        folder.mkdir()
        jobs.append(interrupted_tasks.too_long_async.enqueue(how=how, folder=str(folder)))
    start_worker("--threads", "8")
    wait_for(lambda: not unended(), what="all to end", timeout=45)
    for job in jobs:
        assert_timed_out(job)
    assert (folders["sleep"] / "cleaned up").exists()
    assert (folders["slow to clean up"] / "cleaned up").exists(), "an attempt has not ended before its coroutine has"
    assert Effect.objects.filter(name="swallowed").count() == 0, "the next query is a safe point, swallowed or not"
    assert_all_threads_work(8, tmp_path)


def test_a_success_that_is_faster_than_its_interruption_wins(start_worker: StartWorker, tmp_path: Path) -> None:
    job = interrupted_tasks.ends_after_timeout.enqueue(str(tmp_path))
    worker = start_worker(environment={"TESTS_CONSTANTS": json.dumps({"deadlines.INTERRUPT_AFTER": 60.0})})
    wait_for(lambda: "ran longer than its timeout" in worker.output, what="the timeout")
    open_gate(tmp_path)
    assert job.wait(timeout=40) == "made it"
    assert not Attempt.objects.exists()


def test_jobs_that_ignore_their_timeout_have_the_process_recycled_after_its_neighbours(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    ignoring = [interrupted_tasks.too_long.enqueue(how=how) for how in ("swallow everything", "sleep in C")]
    for how in ("swallow", "block"):
        ignoring.append(interrupted_tasks.too_long_async.enqueue(how=how, folder=str(tmp_path)))
    neighbour = tasks.slow.enqueue(6)
    worker = start_worker("--threads", "8", environment={"TESTS_CONSTANTS": json.dumps(SOONER)})
    wait_for(lambda: Effect.objects.filter(name="slow begins").exists(), what="the neighbour to begin")
    assert worker.wait(timeout=50) == 75, worker.output
    for job in ignoring:
        assert_timed_out(job)
    neighbour.refresh_from_db()
    assert (neighbour.status, neighbour.attempts.count()) == ("SUCCEEDED", 0)
    assert Effect.objects.filter(name="slow ends").exists()


def test_a_process_that_waits_for_its_jobs_to_be_recycled_does_not_wait_for_one_that_ignores_its_timeout(
    start_worker: StartWorker,
) -> None:
    job = interrupted_tasks.too_long.enqueue(how="hoard and sleep in C")
    worker = start_worker("--max-memory", "250M", environment={"TESTS_CONSTANTS": json.dumps(SOONER)})
    assert worker.wait(timeout=50) == 75
    assert "--max-memory 250 MiB" in worker.output
    assert_timed_out(job)


# So that steps come a hundred times sooner, and hit what lasts a few hundredths of a second.
QUICK = {
    "deadlines.CHECK_SECONDS": 0.002,
    "deadlines.CANCEL_QUERY_AFTER": 0.0,
    "deadlines.INTERRUPT_AFTER": 0.01,
    "deadlines.INTERRUPT_EVERY": 0.02,
}


HOWS = ["spin", "query", "commits"]


def enqueue_near(chance: random.Random, middle: float) -> list[Job]:
    """Enqueue jobs that last up to a third less or more than `middle` seconds."""
    lasts = partial(chance.uniform, middle * 2 / 3, middle * 4 / 3)
    return [interrupted_tasks.nearly_too_long.enqueue(lasts(), how) for how in HOWS * 75]


def in_time(jobs: Sequence[Job]) -> tuple[int, int]:
    """Return how many of the jobs ended in time, and how many did not."""
    statuses = Counter(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("status", flat=True))
    return statuses["SUCCEEDED"], statuses["DEAD"]


def test_an_interruption_hits_no_end_no_commit_and_no_neighbour(start_worker: StartWorker, tmp_path: Path) -> None:
    chance = random.Random(3)
    middle = 0.06
    near = enqueue_near(chance, middle)
    atomic = [interrupted_tasks.nearly_too_long_atomic.enqueue(chance.uniform(0.03, 0.08)) for _ in range(75)]
    innocent = tasks.effect.enqueue_many([{"name": str(number)} for number in range(300)])
    Job.objects.filter(pk__in=[job.pk for job in innocent]).update(run_after=near[0].run_after)
    worker = start_worker(environment={"TESTS_CONSTANTS": json.dumps(QUICK)})
    wait_for(lambda: not unended(), what="all to end", timeout=300)
    for _ in range(3):
        succeeded, timed_out = in_time(near)
        if min(succeeded, timed_out) > 20:
            break
        middle *= 1.5 if succeeded > timed_out else 0.67  # "near" is where the interruption comes on this machine
        near += enqueue_near(chance, middle)
        wait_for(lambda: not unended(), what="all to end", timeout=300)
    assert_all_threads_work(8, tmp_path)
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    for job in (*near, *atomic):
        job.refresh_from_db()
        if job.status == "DEAD":
            assert_timed_out(job)
        else:
            assert (job.status, job.result, job.attempts.count()) == ("SUCCEEDED", "in time", 0)
    assert min(in_time(near)) > 20, "the test is as near as it means to be"
    done = set(
        Effect.objects.filter(name="nearly", job_id__in=[job.pk for job in atomic]).values_list("job_id", flat=True)
    )
    assert done == {job.pk for job in atomic if job.status == "SUCCEEDED"}
    assert Job.objects.filter(pk__in=[job.pk for job in innocent], status="SUCCEEDED", attempt=1).count() == 300
