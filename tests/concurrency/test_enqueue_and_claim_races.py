"""A caller and a worker that meet at one unique key, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.models import Job
from tests import claims, tasks
from tests.actors import on_stage
from tests.claims import RETRY, SUCCESS, end
from tests.concurrency.test_enqueue_races import is_waiting
from tests.engine.test_unique import keeps, replaces
from tests.states import a_worker, status_of

pytestmark = pytest.mark.django_db(transaction=True)


def claim() -> ClaimedJob | None:
    """Claim the first ready job that nobody holds."""
    claimed = claims.claim(a_worker())
    return claimed[0] if claimed else None


@pytest.mark.parametrize("function", [keeps, replaces])
@pytest.mark.parametrize("commits", [True, False])
def test_a_waiting_duplicate_is_claimed_only_after_the_caller_is_done(function: Any, commits: bool) -> None:
    job = function.enqueue(1, "old")
    with on_stage("caller") as [caller]:
        caller.begins()
        assert caller.does(function.enqueue, 1, "new") == job
        assert claim() is None, "the worker passes over it"
        other = tasks.effect.enqueue("other")
        claimed = claim()
        assert claimed
        assert claimed.id == other.pk, "and takes what lies behind it"
        caller.commits() if commits else caller.rolls_back()
        claimed = claim()
        assert claimed
        assert claimed.id == job.pk
        assert ('"new"' in claimed.args) == (commits and function is replaces)


def test_a_running_duplicate_is_not_locked() -> None:
    job = keeps.enqueue(1)
    claimed = claim()
    assert claimed
    with on_stage("caller") as [caller]:
        caller.begins()
        found = caller.does(keeps.enqueue, 1)
        assert (found, found.status, found.created) == (job, "RUNNING", False)
        assert end(claimed, SUCCESS)
        assert status_of(job) == "SUCCEEDED"
        assert caller.does(keeps.enqueue, 1).created, "the key is free now"
        caller.commits()


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("function", [keeps, replaces])
def test_a_caller_that_meets_a_claim_finds_the_job_in_the_state_that_the_claim_left(
    function: Any, commits: bool
) -> None:
    job = function.enqueue(1, "old")
    with on_stage("worker", "caller") as [worker, caller]:
        worker.begins(), caller.begins()
        assert worker.does(claim)
        answer = caller.starts(function.enqueue, 1, "new")
        assert is_waiting(answer, caller)
        worker.commits() if commits else worker.rolls_back()
        found = answer.result(timeout=60)
        assert (found, found.created) == (job, False)
        assert found.status == ("RUNNING" if commits else "READY")
        assert found.args[1] == ("new" if function is replaces and not commits else "old")
        caller.commits()


@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_a_caller_that_waits_for_the_lock_of_a_claim_finds_the_job_running(many: bool) -> None:
    def lock_the_job() -> None:
        list(Job.objects.select_for_update(no_key=True))

    job = keeps.enqueue(1)
    with on_stage("worker", "caller") as [worker, caller]:
        worker.begins(), caller.begins()
        worker.does(lock_the_job)
        answer = caller.starts(lambda: keeps.enqueue_many([{"order_id": 1}])[0] if many else keeps.enqueue(1))
        assert is_waiting(answer, caller)
        assert worker.does(claim)
        worker.commits()
        found = answer.result(timeout=60)
        assert (found, found.created, found.status) == (job, False, "RUNNING")
        caller.commits()
    assert Job.objects.get().status == "RUNNING"


def test_a_caller_that_meets_the_end_of_a_job_makes_a_new_one() -> None:
    job = keeps.enqueue(1)
    claimed = claim()
    assert claimed
    with on_stage("worker", "caller") as [worker, caller]:
        worker.begins(), caller.begins()
        assert worker.does(end, claimed, SUCCESS)
        answer = caller.starts(keeps.enqueue, 1)
        assert is_waiting(answer, caller)
        worker.commits()
        made = answer.result(timeout=60)
        assert made.created
        caller.commits()
    assert (status_of(job), status_of(made)) == ("SUCCEEDED", "READY")


@pytest.mark.parametrize("commits", [True, False])
def test_a_retry_does_not_meet_the_job_that_took_its_key_since_it_started(commits: bool) -> None:
    first = tasks.unique_until_start.enqueue("a")
    claimed = claim()
    assert claimed
    with on_stage("caller") as [caller]:
        caller.begins()
        second = caller.does(tasks.unique_until_start.enqueue, "a")
        assert second.created
        assert end(claimed, RETRY)
        caller.commits() if commits else caller.rolls_back()
    assert status_of(first) == "READY"
    assert Job.objects.count() == (2 if commits else 1)
    taken = [claim(), claim()]
    assert {each.id for each in taken if each} == ({first.pk, second.pk} if commits else {first.pk})
