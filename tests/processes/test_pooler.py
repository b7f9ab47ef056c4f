"""Everything works behind a transaction pooler: nothing relies on the state of a session."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from django_reliable_jobs.models import Attempt, Job, Worker
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.pooler import Pooler, find_program
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def pooler(transactional_db: None) -> Iterator[Pooler]:
    program = find_program()
    if program is None:
        # A newcomer's machine may lack it; where every promise must be shown it may not.
        report = pytest.fail if os.environ.get("CI") else pytest.skip
        report("pgbouncer is not installed: apt-get install pgbouncer")
    pooler = Pooler(program)
    yield pooler
    pooler.stop()


def test_workers_share_few_sessions_and_every_job_runs_once(start_worker: StartWorker, pooler: Pooler) -> None:
    jobs = tasks.effect.enqueue_many([{"name": str(number)} for number in range(500)])
    jobs += interrupted_tasks.atomic_effect.enqueue_many([{"name": str(number)} for number in range(200)])
    workers = [start_worker("--burst", environment=pooler.environment(), ready=False) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].output
    runs = Counter(Effect.objects.values_list("job_id", flat=True))
    assert set(runs) == {job.pk for job in jobs}
    assert set(runs.values()) == {1}
    assert Job.objects.filter(status="SUCCEEDED").count() == 700


def test_it_polls_and_says_so_once(start_worker: StartWorker, pooler: Pooler) -> None:
    worker = start_worker(environment=pooler.environment())
    wait_for(lambda: Worker.objects.filter(is_idle=True).exists(), what="the worker to be idle")
    assert tasks.effect.enqueue("polled").wait(timeout=30) == "polled"
    assert worker.output.count("transaction pooler") == 1


def test_a_killed_worker_is_rescued_and_a_running_job_is_cancelled(start_worker: StartWorker, pooler: Pooler) -> None:
    from django_reliable_jobs.engine import lifecycle

    options = {"settings": {"LEASE_SECONDS": 2}, "environment": pooler.environment()}
    job = tasks.slow_once.enqueue(60)
    victim = start_worker(**options)
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    victim.send(signal.SIGKILL)
    start_worker(**options)
    assert job.wait(timeout=30) is None
    assert Attempt.objects.get(job=job).outcome == "lost"
    loop = tasks.until_stopping.enqueue()
    wait_for(lambda: Job.objects.filter(pk=loop.pk, status="RUNNING").exists(), what="the job to begin")
    lifecycle.cancel("default", [loop.pk], reason="enough")
    wait_for(lambda: Job.objects.filter(pk=loop.pk, status="CANCELLED").exists(), what="the cancellation")
