"""What a worker does with its jobs when it can't renew its lease in time, and does not know whether it has lost it."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

import pytest
from django.db import transaction

from django_reliable_jobs.models import Job, Worker
from django_reliable_jobs.processes.execution import RELEASED
from django_reliable_jobs.processes.pool import HeldJob, Pool
from tests import tasks
from tests.actors import wait_for
from tests.claims import claim_one_as
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def test_jobs_end_before_the_lease_does_when_its_renewal_hangs(start_worker: StartWorker) -> None:
    worker = start_worker("--threads", "1", settings={"LEASE_SECONDS": 9})
    job = tasks.until_stopping.enqueue()
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    with transaction.atomic():
        row = Worker.objects.select_for_update().get(pid=worker.pid)  # the heartbeat waits here, without an error
        wait_for(lambda: job.attempts.exists(), what="the end of the attempt")
        assert Job.objects.get(pk=job.pk).claims == 1, "nothing is claimed while the lease is in doubt"
    assert job.attempts.get().outcome == "interrupted"
    assert job.attempts.get().finished_at < row.expires_at
    assert "lease" in job.attempts.get().error_message


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("reason", ["lost", "cancel", "shutdown"])
def test_a_job_that_is_to_end_before_it_has_begun_is_given_back(reason: str) -> None:
    tasks.effect.enqueue("never")
    held = HeldJob(claim_one_as(1))
    held.flag.reason = reason
    ended: SimpleQueue[HeldJob] = SimpleQueue()
    started: list[int] = []
    pool = Pool(1, using="default", report=ended.put, on_start=started.append, on_death=lambda *_: None)
    pool.start()
    pool.submit([held])
    pool.hand_out()
    assert ended.get(timeout=60).outcome is RELEASED
    assert (started, held.started) == ([], None)
    assert not Effect.objects.exists()
    assert Job.objects.get().status == "RUNNING"  # until the worker records it
    pool.stop()
