"""How attempts and jobs end; what a replaced attempt can't do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_reliable_jobs.engine import atomic, lifecycle
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Ending, Outcome
from django_reliable_jobs.exceptions import LeaseLost
from django_reliable_jobs.models import Attempt, CancelRequest, Job
from tests import tasks
from tests.claims import DEATH, RELEASE, RETRY, SNOOZE, SUCCESS, claim, claim_one_as, end, replace, row, succeed
from tests.factories import SucceededJobFactory
from tests.models import Effect
from tests.states import a_worker

pytestmark = pytest.mark.django_db


def a_claimed_job() -> ClaimedJob:
    tasks.nothing.enqueue()
    return claim_one_as(1)


def state(job: Any) -> tuple[Any, ...]:
    found = row(job)
    return found.status, found.attempt, found.losses, found.result, found.reason


@pytest.mark.parametrize("outcome", [RETRY, SNOOZE, RELEASE, DEATH, SUCCESS], ids=lambda each: each.status)
def test_a_replaced_attempt_ends_nothing(outcome: Outcome) -> None:
    first = a_claimed_job()
    second = replace(first)
    before = state(first)
    assert end(first, outcome) is False
    assert succeed(first) is False
    assert state(first) == before
    assert row(first).token == second.token
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["lost"]
    assert succeed(second) is True


def test_an_ended_attempt_ends_only_once() -> None:
    job = a_claimed_job()
    assert end(job, DEATH)
    assert not end(job, RETRY)
    assert not succeed(job)
    assert (row(job).status, row(job).attempts.count()) == ("DEAD", 1)


def test_a_retry_uses_the_attempt_and_keeps_its_story() -> None:
    job = a_claimed_job()
    assert end(job, RETRY, started_ago=3.0, ended_ago=1.0)
    assert state(job) == ("READY", 1, 0, None, None)
    attempt = Attempt.objects.get()
    assert (attempt.number, attempt.claim, attempt.outcome, attempt.worker) == (1, 1, "failed", "host:1")
    assert (attempt.error_class, attempt.error_message) == ("ValueError", "it broke")
    assert 2 <= attempt.duration.total_seconds() < 2.1


def test_a_snooze_gives_the_attempt_back() -> None:
    job = a_claimed_job()
    assert end(job, SNOOZE)
    found = row(job)
    assert (found.status, found.attempt, found.claims) == ("SCHEDULED", 0, 1)
    assert 55 < (found.run_after - timezone.now()).total_seconds() <= 60
    assert (Attempt.objects.get().outcome, Attempt.objects.get().number) == ("snoozed", 1)


def test_a_release_keeps_the_place_in_the_line_and_writes_no_attempt() -> None:
    job = a_claimed_job()
    before = row(job).run_after
    assert end(job, RELEASE)
    assert (row(job).status, row(job).attempt, row(job).run_after) == ("READY", 0, before)
    assert not Attempt.objects.exists()


def test_endings_of_many_jobs_are_written_together() -> None:
    tasks.nothing.enqueue_many([{}] * 4)
    jobs = claim(a_worker(1), 4)
    outcomes = [RETRY, SNOOZE, DEATH, RELEASE]
    endings = [Ending(job.id, job.token, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]
    assert lifecycle.end("default", endings, worker="host:1") == {job.id for job in jobs}
    assert [row(job).status for job in jobs] == ["READY", "SCHEDULED", "DEAD", "READY"]


def test_a_success_forgives_losses() -> None:
    first = a_claimed_job()
    second = replace(first)
    assert second.losses == 1
    assert succeed(second)
    assert row(second).losses == 0


def test_endings_that_were_not_written_are_told_apart() -> None:
    tasks.nothing.enqueue_many([{}] * 4)
    running, succeeded, retried, gone = claim(a_worker(1), 4)
    succeed(succeeded), end(retried, RETRY)
    Job.objects.filter(pk=gone.id).delete()
    endings = [Ending(job.id, job.token, SUCCESS) for job in (running, succeeded, retried, gone)]
    held, before, replaced = lifecycle.sort_out("default", endings)
    assert [[each.job_id for each in group] for group in (held, before, replaced)] == [
        [running.id],
        [succeeded.id],
        [retried.id, gone.id],
    ]


def test_what_a_dead_job_names_is_enqueued_with_its_death() -> None:
    job = tasks.dies_and_is_buried.enqueue()
    claimed = claim_one_as(1)
    assert end(claimed, DEATH)
    assert Job.objects.get(task="tests.tasks.bury").kwargs == {"job_id": job.pk}
    assert not end(claimed, DEATH)
    assert Job.objects.filter(task="tests.tasks.bury").count() == 1


# --- an atomic task's success


def test_an_atomic_success_commits_with_the_writes_around_it() -> None:
    job = a_claimed_job()
    with atomic.succeeding("default", job.id, job.token) as record:
        Effect.objects.create(name="kept")
        record('{"a": 1}', 2.0)
    found = row(job)
    assert (found.status, found.result, found.losses) == ("SUCCEEDED", {"a": 1}, 0)
    assert 1.9 < (found.finished_at - found.started_at).total_seconds() < 2.1
    assert Effect.objects.get().name == "kept"


def test_an_atomic_success_of_a_replaced_attempt_undoes_its_writes() -> None:
    first = a_claimed_job()
    second = replace(first)
    with pytest.raises(LeaseLost), atomic.succeeding("default", first.id, first.token) as record:
        Effect.objects.create(name="undone")
        record(None, 0.0)
    assert not Effect.objects.exists()
    assert (row(first).status, row(first).token) == ("RUNNING", second.token)


def test_an_error_undoes_an_atomic_success() -> None:
    job = a_claimed_job()
    with pytest.raises(ValueError, match="mine"), atomic.succeeding("default", job.id, job.token):
        Effect.objects.create(name="undone")
        raise ValueError("mine")
    assert not Effect.objects.exists()
    assert row(job).status == "RUNNING"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("moment", ["before the record", "before the commit", "after the commit"])
def test_a_connection_that_is_lost_is_told_from_one_whose_commit_was_done(moment: str) -> None:
    job = a_claimed_job()

    def act() -> None:
        with atomic.succeeding("default", job.id, job.token) as record:
            Effect.objects.create(name="mine")
            if moment == "before the record":
                end_own_session()
            record(None, 0.0)
            if moment == "before the commit":
                end_own_session()
            if moment == "after the commit":
                transaction.on_commit(end_own_session)

    if moment == "after the commit":
        act()
        assert (row(job).status, Effect.objects.count()) == ("SUCCEEDED", 1)
    else:
        with pytest.raises(Exception, match="connection"):
            act()
        assert (row(job).status, Effect.objects.count()) == ("RUNNING", 0)
        assert end(job, RETRY)


def end_own_session() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


# --- cancel and revive


def test_a_cancel_ends_what_waits_and_asks_what_runs() -> None:
    tasks.nothing.enqueue()
    running = claim_one_as(1)
    ready = tasks.nothing.enqueue()
    later = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
    ended = SucceededJobFactory()
    done = lifecycle.cancel("default", [running.id, ready.pk, later.pk, ended.pk, 10**12], reason="not needed")
    assert (done.cancelled, done.asked) == ([ready.pk, later.pk], [running.id])
    assert [row(each).status for each in (running, ready, later, ended)] == [
        "RUNNING",
        "CANCELLED",
        "CANCELLED",
        "SUCCEEDED",
    ]
    assert row(ready).reason == "not needed"
    assert lifecycle.cancel("default", [running.id], reason="again").asked == []
    assert CancelRequest.objects.get().reason == "not needed"


@pytest.mark.parametrize("outcome", [RETRY, SNOOZE, RELEASE, DEATH], ids=lambda each: str(each.attempt))
def test_an_end_that_is_no_success_honours_the_request(outcome: Outcome) -> None:
    job = a_claimed_job()
    lifecycle.cancel("default", [job.id], reason="not needed")
    assert end(job, outcome)
    found = row(job)
    assert (found.status, found.reason) == ("CANCELLED", "not needed")
    assert found.finished_at is not None
    assert not CancelRequest.objects.exists()


def test_a_request_without_a_reason_is_told_as_such() -> None:
    job, waiting = a_claimed_job(), tasks.nothing.enqueue()
    lifecycle.cancel("default", [job.id, waiting.pk], reason="")
    assert end(job, RETRY)
    assert row(job).reason == row(waiting).reason == "cancelled on request"
