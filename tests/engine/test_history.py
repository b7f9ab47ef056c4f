"""The attempts of a job that was tried again by a person, told apart by their numbers."""

from __future__ import annotations

import pytest

from django_reliable_jobs.engine import history, inspection, lifecycle, revival
from django_reliable_jobs.models import Attempt, Job
from tests import tasks
from tests.recorded import run_jobs

pytestmark = pytest.mark.django_db


def told(job: Job) -> list[str]:
    """The attempts of a job, newest first, with a bar where it was retried; two, where that was from the start."""
    job.refresh_from_db()
    attempts = inspection.find_attempts("default", job.pk, limit=20)
    bars = {
        claim: "||" if is_from_start else "|" for claim, is_from_start in history.retried_after(job, attempts).items()
    }
    return [f"{bars.get(each.claim, '')}{each.number} {each.outcome}" for each in attempts]


def test_a_job_that_was_never_retried_has_one_series() -> None:
    job = tasks.fails_until.enqueue(99)
    assert told(job) == []
    run_jobs()
    assert told(job) == ["3 failed", "2 failed", "1 failed"]


def test_a_job_that_succeeded_after_failures_has_one_series() -> None:
    job = tasks.fails_until.enqueue(3)
    run_jobs()
    assert told(job) == ["2 failed", "1 failed"]
    assert job.status == "SUCCEEDED"


def test_each_retry_begins_a_series() -> None:
    job = tasks.fails_until.enqueue(99)
    run_jobs()
    for _ in range(2):
        revival.revive("default", [job.pk])
        assert told(job)[0] == "|3 failed", "nothing has run since"
        run_jobs()
    first, later = ["3 failed", "2 failed", "1 failed"], ["|3 failed", "2 failed", "1 failed"]
    assert told(job) == [*first, *later, *later]


def test_a_series_of_one_attempt_is_told_from_the_next() -> None:
    job = tasks.breaks_its_transaction.enqueue()
    run_jobs()
    revival.revive("default", [job.pk])
    run_jobs()
    assert told(job) == ["1 failed", "|1 failed"]


def test_a_new_run_is_told_from_a_retry_that_goes_on() -> None:
    job = tasks.fails_until.enqueue(2)
    run_jobs()
    revival.revive("default", [job.pk])  # it had succeeded
    run_jobs()
    assert told(job) == ["1 failed", "||1 failed"]
    revival.revive("default", [job.pk], from_start=True)
    assert told(job) == ["||1 failed", "||1 failed"]


def test_a_retry_that_succeeds_at_once_is_told() -> None:
    job = tasks.fails_until.enqueue(99)
    run_jobs()
    Job.objects.update(args=[1])
    revival.revive("default", [job.pk])
    run_jobs()
    job.refresh_from_db()
    assert job.status == "SUCCEEDED"
    assert told(job)[0] == "|3 failed"


def test_a_job_that_was_cancelled_and_retried_has_two_series() -> None:
    job = tasks.fails.enqueue()
    run_jobs()
    lifecycle.cancel("default", [job.pk], reason="no")
    assert told(job) == ["1 failed"]
    revival.revive("default", [job.pk])
    run_jobs()
    assert told(job) == ["1 failed", "|1 failed"]


@pytest.mark.parametrize("outcome", ["snoozed", "interrupted", "lost"])
def test_attempts_that_were_given_back_are_of_one_series(outcome: str) -> None:
    job = tasks.fails.enqueue()
    run_jobs()
    Attempt.objects.filter(job=job).update(outcome=outcome)
    Job.objects.update(attempt=0, status="READY")
    run_jobs()
    assert told(job) == ["1 failed", f"1 {outcome}"]


def test_what_was_written_after_the_job_was_read_is_no_retry() -> None:
    job = tasks.fails_until.enqueue(99)
    run_jobs()
    attempts = inspection.find_attempts("default", job.pk, limit=20)
    assert history.retried_after(Job(pk=job.pk, status="RUNNING", attempt=1, claims=1, run=1), attempts) == {}
