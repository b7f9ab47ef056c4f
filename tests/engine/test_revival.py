"""Ended jobs begin again: with what they had done, or from their start."""

from __future__ import annotations

import pytest
from django.utils import timezone

from django_reliable_jobs.engine import lifecycle, revival
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.models import CancelRequest, Checkpoint, Job
from django_reliable_jobs.testing import run_jobs
from tests import tasks
from tests.claims import DEATH, SUCCESS, claim_one_as, end, port_of, row, succeed
from tests.factories import CancelledJobFactory, DeadJobFactory, RunningJobFactory, SucceededJobFactory
from tests.items import context_of

pytestmark = pytest.mark.django_db


def a_claimed_job() -> ClaimedJob:
    tasks.nothing.enqueue()
    return claim_one_as(1)


def test_ended_jobs_start_over_with_all_their_attempts() -> None:
    jobs = [DeadJobFactory(), CancelledJobFactory(), SucceededJobFactory(result=1)]
    running = RunningJobFactory()
    done = revival.revive("default", [each.pk for each in [*jobs, running]])
    assert sorted(done.revived) == sorted(each.pk for each in jobs)
    for job in jobs:
        found = row(job)
        assert (found.status, found.attempt, found.losses, found.result, found.reason) == ("READY", 0, 0, None, None)
        assert found.finished_at is None
    assert row(running).status == "RUNNING"
    assert len(run_jobs()) == 3


def test_a_job_that_is_revived_goes_on_with_its_checkpoints_unless_it_had_succeeded() -> None:
    for outcome, run in ((DEATH, 1), (SUCCESS, 2)):
        job = a_claimed_job()
        port_of(job).save("cursor", 5)
        assert succeed(job) if outcome is SUCCESS else end(job, outcome)
        revival.revive("default", [job.id])
        again = claim_one_as(2)
        assert (again.id, again.run) == (job.id, run)
        assert port_of(again).load("cursor", None) == (5 if run == 1 else None)
        assert end(again, DEATH)


def test_a_run_from_the_start_has_neither_checkpoints_nor_keys_of_the_one_before() -> None:
    job = a_claimed_job()
    port_of(job).save("cursor", 5)
    key = context_of(job).idempotency_key("charge")
    assert end(job, DEATH)
    revival.revive("default", [job.id], from_start=True)
    again = claim_one_as(2)
    assert (again.id, again.run, again.attempt) == (job.id, 2, 1)
    assert port_of(again).load("cursor", None) is None
    assert context_of(again).idempotency_key("charge") != key
    port_of(again).save("cursor", 1)
    assert sorted(Checkpoint.objects.values_list("run", "value")) == [(1, 5), (2, 1)]


def test_a_revived_job_is_not_cancelled_by_an_old_request() -> None:
    job = a_claimed_job()
    lifecycle.cancel("default", [job.id], reason="old")
    Job.objects.filter(pk=job.id).update(status="DEAD", finished_at=timezone.now())
    assert revival.revive("default", [job.id]).revived == [job.id]
    assert not CancelRequest.objects.exists()
    assert len(run_jobs()) == 1
    assert row(job).status == "SUCCEEDED"
