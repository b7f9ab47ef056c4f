"""Who wins when a job is cancelled while its attempt begins or ends, or while it is rescued."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from django_reliable_jobs.engine import claim as claiming
from django_reliable_jobs.engine import heartbeat, lifecycle, maintenance
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.models import CancelRequest, Job
from tests import tasks
from tests.actors import Actor, on_stage, wait_until_blocked
from tests.claims import DEATH, RELEASE, RETRY, SNOOZE, claim, claim_one_as, end, let_lease_run_out, row, succeed
from tests.states import a_worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def actors() -> Iterator[list[Actor]]:
    with on_stage("first", "second") as actors:
        yield actors


def a_claimed_job() -> ClaimedJob:
    tasks.nothing.enqueue()
    return claim_one_as(1)


Write = Callable[[ClaimedJob], object]


def rescue(job: ClaimedJob) -> None:
    let_lease_run_out(job)
    assert maintenance.rescue("default") == 1


ENDS: dict[str, Write] = {
    "retry": lambda job: end(job, RETRY),
    "snooze": lambda job: end(job, SNOOZE),
    "release": lambda job: end(job, RELEASE),
    "death": lambda job: end(job, DEATH),
    "rescue": rescue,
}
every_end = pytest.mark.parametrize("ending", ENDS.values(), ids=ENDS)


def ask(job: ClaimedJob) -> list[int]:
    return lifecycle.cancel("default", [job.id], reason="not needed").asked


def assert_it_never_comes_back(job: ClaimedJob) -> None:
    Job.objects.filter(pk=job.id, status="SCHEDULED").update(run_after="2020-01-01T00:00:00Z")
    maintenance.promote("default")
    assert claim(a_worker(9)) == []
    maintenance.honour_cancel_requests("default")
    assert (row(job).status, row(job).reason) == ("CANCELLED", "not needed")
    assert not CancelRequest.objects.exists()


@every_end
def test_a_request_that_committed_before_the_end_cancels(actors: list[Actor], ending: Write) -> None:
    worker, caller = actors
    job = a_claimed_job()
    assert caller.does(ask, job) == [job.id]
    worker.does(ending, job)
    assert row(job).status == "CANCELLED"
    assert_it_never_comes_back(job)


@every_end
def test_a_request_that_commits_while_the_end_is_written_cancels(actors: list[Actor], ending: Write) -> None:
    worker, caller = actors
    job = a_claimed_job()
    worker.begins()
    worker.does(ending, job)
    assert caller.does(ask, job) == [job.id]  # it does not wait for the worker
    worker.commits()
    if ending is ENDS["death"]:
        maintenance.honour_cancel_requests("default")
        assert row(job).status == "DEAD"  # the end won
        assert not CancelRequest.objects.exists()
    else:
        assert_it_never_comes_back(job)


@every_end
def test_a_request_that_commits_after_the_end_it_began_before_cancels(actors: list[Actor], ending: Write) -> None:
    worker, caller = actors
    job = a_claimed_job()
    caller.begins()
    assert caller.does(ask, job) == [job.id]
    worker.does(ending, job)
    caller.commits()
    if ending is ENDS["death"]:
        maintenance.honour_cancel_requests("default")
        assert row(job).status == "DEAD"
        assert not CancelRequest.objects.exists()
    else:
        assert_it_never_comes_back(job)


@every_end
def test_a_request_that_is_rolled_back_changes_nothing(actors: list[Actor], ending: Write) -> None:
    worker, caller = actors
    job = a_claimed_job()
    caller.begins()
    caller.does(ask, job)
    worker.does(ending, job)
    caller.rolls_back()
    maintenance.honour_cancel_requests("default")
    assert row(job).status == {"death": "DEAD", "snooze": "SCHEDULED"}.get(_name(ending), "READY")


def _name(ending: Write) -> str:
    return next(name for name, each in ENDS.items() if each is ending)


@pytest.mark.parametrize("point", ["before", "during", "after"])
def test_a_success_wins_against_a_request_at_any_point(actors: list[Actor], point: str) -> None:
    worker, caller = actors
    job = a_claimed_job()
    if point == "before":
        caller.does(ask, job)
    worker.begins()
    assert worker.does(succeed, job)
    if point == "during":
        caller.does(ask, job)
    worker.commits()
    if point == "after":
        assert caller.does(ask, job) == []
    maintenance.honour_cancel_requests("default")
    assert (row(job).status, row(job).result) == ("SUCCEEDED", "done")
    assert not CancelRequest.objects.exists()


def test_a_job_that_is_being_claimed_is_asked_to_cancel(actors: list[Actor]) -> None:
    worker, caller = actors
    tasks.nothing.enqueue()
    worker_id = a_worker(1)
    worker.begins()
    [job] = worker.does(claim, worker_id)
    done = caller.does(lifecycle.cancel, "default", [job.id], reason="not needed")
    assert (done.cancelled, done.asked) == ([], [job.id])
    worker.commits()
    assert heartbeat.cancel_requests("default", worker_id) == {job.token}
    end(job, RETRY)
    assert_it_never_comes_back(job)


def test_a_job_that_is_being_promoted_is_cancelled_and_not_claimed(actors: list[Actor]) -> None:
    promoter, caller = actors
    job = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
    Job.objects.update(run_after="2020-01-01T00:00:00Z")
    promoter.begins()
    assert promoter.does(maintenance.promote, "default") == 1
    assert caller.does(lifecycle.cancel, "default", [job.pk], reason="not needed").asked == [job.pk]
    promoter.commits()
    assert claim(a_worker(1)) == []
    maintenance.honour_cancel_requests("default")
    assert row(job).status == "CANCELLED"


def test_a_claim_waits_for_nobody_and_a_cancelled_job_is_passed_over(actors: list[Actor]) -> None:
    worker, caller = actors
    job = tasks.nothing.enqueue()
    caller.begins()
    assert caller.does(lifecycle.cancel, "default", [job.pk], reason="").cancelled == [job.pk]
    assert worker.does(claim, a_worker(1)) == []
    caller.commits()
    assert row(job).status == "CANCELLED"


def test_a_claim_with_a_waiting_lock_sees_what_happened_meanwhile(actors: list[Actor]) -> None:
    worker, caller = actors
    job = tasks.nothing.enqueue()
    caller.begins()
    caller.does(lifecycle.cancel, "default", [job.pk], reason="")
    claiming_it = worker.starts(claiming.claim_passed_over, "default", a_worker(1), job.pk, patience=60)
    wait_until_blocked(worker)
    caller.commits()
    assert claiming_it.result(timeout=60) is None
    assert row(job).status == "CANCELLED"
