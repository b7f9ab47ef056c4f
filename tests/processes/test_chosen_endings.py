"""How a task chooses its ending, and what it can't choose: more attempts than it has."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_reliable_jobs.models import Job
from tests import tasks
from tests.recorded import run_jobs

pytestmark = pytest.mark.django_db


def attempts_of(job: Job) -> list[tuple[int, str, str]]:
    return [(each.number, each.outcome, each.error_message) for each in job.attempts.order_by("pk")]


@pytest.mark.parametrize("after", [30, None], ids=["at a moment of its own", "by its backoff"])
def test_retry_uses_an_attempt_and_the_last_one_is_the_last(after: float | None) -> None:
    job = tasks.ends_by.enqueue("retry", after=after)
    run_jobs()
    job.refresh_from_db()
    assert (job.status, job.attempt, job.reason) == ("SCHEDULED", 1, "asked to retry")
    if after is not None:
        assert timedelta(seconds=29) < job.run_after - job.started_at <= timedelta(seconds=31)
    run_jobs(until=timedelta(hours=2))
    job.refresh_from_db()
    assert (job.status, job.attempt, job.reason) == ("DEAD", 2, "asked to retry")
    assert attempts_of(job) == [(1, "failed", "asked to retry"), (2, "failed", "asked to retry")]


def test_snooze_uses_no_attempt() -> None:
    job = tasks.ends_by.enqueue("snooze", after=30)
    run_jobs(until=timedelta(seconds=70))
    job.refresh_from_db()
    assert (job.status, job.attempt, job.claims) == ("SCHEDULED", 0, 3)
    assert [outcome for _, outcome, _ in attempts_of(job)] == ["snoozed"] * 3


@pytest.mark.parametrize(
    ("ending", "status", "outcome"), [("cancel", "CANCELLED", "cancelled"), ("fail", "DEAD", "failed")]
)
def test_cancel_and_fail_end_it_though_attempts_are_left(ending: str, status: str, outcome: str) -> None:
    job = tasks.ends_by.enqueue(ending)
    run_jobs(until=timedelta(hours=2))
    job.refresh_from_db()
    assert (job.status, job.attempt, job.reason) == (status, 1, f"asked to {ending}")
    assert attempts_of(job) == [(1, outcome, f"asked to {ending}")]
