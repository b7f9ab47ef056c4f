"""Who wins when an attempt ends and is rescued at the same moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_reliable_jobs.engine import atomic, heartbeat, lifecycle, maintenance
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Ending
from django_reliable_jobs.exceptions import LeaseLost
from django_reliable_jobs.models import Checkpoint, Job, Worker
from tests import tasks
from tests.actors import Actor, on_stage, wait_for, wait_until_blocked
from tests.claims import (
    RETRY,
    SUCCESS,
    claim,
    claim_one_as,
    end,
    let_lease_run_out,
    port_of,
    row,
    succeed,
)
from tests.states import a_worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def actors() -> Iterator[list[Actor]]:
    with on_stage("first", "second") as actors:
        yield actors


def a_claimed_job() -> ClaimedJob:
    tasks.nothing.enqueue()
    return claim_one_as(1)


def sorted_out(job: ClaimedJob) -> list[int]:
    """Return how many endings are (held, written before, replaced)."""
    return [len(group) for group in lifecycle.sort_out("default", [Ending(job.id, job.token, SUCCESS)])]


def blocks_somebody(actor: Actor) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))", [actor.backend_pid])
        return cursor.fetchone() is not None


# --- the fence


def test_who_holds_the_fence_is_not_replaced_until_it_commits(actors: list[Actor]) -> None:
    attempt, rescuer = actors
    job = a_claimed_job()
    attempt.begins()
    attempt.does(port_of(job).save, "cursor", 1)
    let_lease_run_out(job)
    assert rescuer.does(maintenance.rescue, "default") == 0
    attempt.commits()
    assert Checkpoint.objects.get().value == 1
    assert rescuer.does(maintenance.rescue, "default") == 1
    assert (row(job).status, row(job).losses) == ("READY", 1)


@pytest.mark.parametrize("wins", [True, False])
def test_a_checkpoint_waits_for_the_rescue_and_is_lost_if_that_commits(actors: list[Actor], wins: bool) -> None:
    attempt, rescuer = actors
    job = a_claimed_job()
    let_lease_run_out(job)
    rescuer.begins()
    assert rescuer.does(maintenance.rescue, "default") == 1
    saving = attempt.starts(port_of(job).save, "cursor", 1)
    wait_until_blocked(attempt)
    if wins:
        rescuer.commits()
        with pytest.raises(LeaseLost):
            saving.result(timeout=60)
        assert not Checkpoint.objects.exists()
    else:
        rescuer.rolls_back()
        saving.result(timeout=60)
        assert Checkpoint.objects.get().value == 1


@pytest.mark.parametrize("commits", [True, False])
def test_the_outcome_of_a_lost_commit_is_known_when_its_session_has_ended(actors: list[Actor], commits: bool) -> None:
    lost, reader = actors
    job = a_claimed_job()
    committing = atomic.succeeding("default", job.id, job.token)
    record = lost.does(committing.__enter__)
    lost.does(record, '"done"', 0.1)
    reading = reader.starts(atomic.was_recorded, "default", job.id, job.token)
    wait_for(lambda: blocks_somebody(lost), what="the reader to wait for the lost session")
    error = None if commits else ValueError("rolled back")
    if error is None:
        lost.does(committing.__exit__, None, None, None)
    else:
        assert not lost.does(committing.__exit__, ValueError, error, None)
    assert reading.result(timeout=60) is commits
    assert row(job).status == ("SUCCEEDED" if commits else "RUNNING")


def test_an_atomic_success_of_a_replaced_attempt_writes_nothing(actors: list[Actor]) -> None:
    attempt, rescuer = actors
    job = a_claimed_job()
    let_lease_run_out(job)
    rescuer.begins()
    assert rescuer.does(maintenance.rescue, "default") == 1

    def succeed_atomically() -> None:
        with atomic.succeeding("default", job.id, job.token) as record:
            tasks.Effect.objects.create(name="too late")
            record('"done"', 0.1)

    succeeding = attempt.starts(succeed_atomically)
    wait_until_blocked(attempt)
    rescuer.commits()
    with pytest.raises(LeaseLost):
        succeeding.result(timeout=60)
    assert not tasks.Effect.objects.exists()
    assert (row(job).status, row(job).result) == ("READY", None)


# --- ends against rescue


@pytest.mark.parametrize("rescue_commits", [True, False])
def test_a_success_passes_over_a_row_that_is_being_rescued(actors: list[Actor], rescue_commits: bool) -> None:
    worker, rescuer = actors
    job = a_claimed_job()
    let_lease_run_out(job)
    rescuer.begins()
    assert rescuer.does(maintenance.rescue, "default") == 1
    assert worker.does(succeed, job) is False
    assert worker.does(end, job, RETRY) is False
    assert worker.does(sorted_out, job) == [1, 0, 0]  # held: to be tried again
    if rescue_commits:
        rescuer.commits()
        assert worker.does(sorted_out, job) == [0, 0, 1]  # replaced: to be dropped
        assert worker.does(succeed, job) is False
        assert row(job).status == "READY"
    else:
        rescuer.rolls_back()
        assert worker.does(succeed, job) is True
        assert worker.does(sorted_out, job) == [0, 1, 0]


def test_a_success_that_is_being_written_is_not_rescued(actors: list[Actor]) -> None:
    worker, rescuer = actors
    job = a_claimed_job()
    worker.begins()
    assert worker.does(succeed, job) is True
    let_lease_run_out(job)
    assert rescuer.does(maintenance.rescue, "default") == 0
    assert Worker.objects.get(pid=1).lost_at is not None
    worker.commits()
    assert rescuer.does(maintenance.rescue, "default") == 0
    assert (row(job).status, row(job).losses) == ("SUCCEEDED", 0)
    assert not Worker.objects.filter(pid=1).exists()


def test_a_running_row_that_was_locked_is_taken_by_a_later_turn(actors: list[Actor]) -> None:
    business, rescuer = actors
    tasks.nothing.enqueue_many([{}] * 3)
    jobs = claim(a_worker(1), 3)
    business.begins()
    business.does(lambda: Job.objects.select_for_update().get(pk=jobs[1].id))
    let_lease_run_out(jobs[0])
    assert rescuer.does(maintenance.rescue, "default") == 2
    assert [row(job).status for job in jobs] == ["READY", "RUNNING", "READY"]
    assert Worker.objects.get(pid=1).lost_at is not None  # on the list while a RUNNING row names it
    business.commits()
    assert rescuer.does(maintenance.rescue, "default") == 1
    assert row(jobs[1]).status == "READY"
    assert not Worker.objects.filter(pid=1).exists()


def test_a_claim_that_commits_after_its_worker_was_declared_lost_is_taken_by_a_later_turn(actors: list[Actor]) -> None:
    late, rescuer = actors
    tasks.nothing.enqueue_many([{}] * 2)
    worker_id = a_worker(1)
    [before] = claim(worker_id)
    late.begins()
    [job] = late.does(claim, worker_id)
    let_lease_run_out(before)
    assert rescuer.does(maintenance.rescue, "default") == 1
    late.commits()
    assert (row(job).status, row(job).worker_id) == ("RUNNING", worker_id)
    Job.objects.filter(pk=job.id).update(started_at="2020-01-01T00:00:00Z")  # a lease ago
    assert rescuer.does(maintenance.rescue, "default") == 1
    assert (row(job).status, row(job).losses) == ("READY", 1)
    assert not Worker.objects.exists()


def test_two_rescuers_take_a_job_once(actors: list[Actor]) -> None:
    first, second = actors
    job = a_claimed_job()
    let_lease_run_out(job)
    first.begins()
    assert first.does(maintenance.rescue, "default") == 1
    assert second.does(maintenance.rescue, "default") == 0
    first.commits()
    assert second.does(maintenance.rescue, "default") == 0
    assert (row(job).losses, row(job).attempts.count()) == (1, 1)


@pytest.mark.parametrize("commits", [True, False])
def test_a_heartbeat_waits_for_the_verdict_of_a_rescue(actors: list[Actor], commits: bool) -> None:
    worker, rescuer = actors
    job = a_claimed_job()
    worker_id = row(job).worker_id
    let_lease_run_out(job)
    rescuer.begins()
    rescuer.does(maintenance.rescue, "default")
    renewing = worker.starts(heartbeat.renew, "default", worker_id)
    wait_until_blocked(worker)
    if commits:
        rescuer.commits()
    else:
        rescuer.rolls_back()
    assert renewing.result(timeout=60) is not commits


def test_a_worker_that_renews_in_time_is_not_declared_lost(actors: list[Actor]) -> None:
    worker, rescuer = actors
    job = a_claimed_job()
    let_lease_run_out(job)
    worker.begins()
    assert worker.does(heartbeat.renew, "default", row(job).worker_id) is True
    assert rescuer.does(maintenance.rescue, "default") == 0
    worker.commits()
    assert rescuer.does(maintenance.rescue, "default") == 0
    assert row(job).status == "RUNNING"
