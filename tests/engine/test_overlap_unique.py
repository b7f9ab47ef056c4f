"""Replacing jobs of a task that is unique: its key may be in the way of the new job."""

from __future__ import annotations

import pytest

from django_reliable_jobs.models import CancelRequest, Job, Schedule
from django_reliable_jobs.testing import tick
from tests import tasks
from tests.schedules import a_schedule, jobs_of, on, slots_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


def test_replace_of_a_unique_task_loses_no_job_to_its_own_key() -> None:
    schedule = a_schedule(task="tests.tasks.unique", kwargs={"key": "a"}, overlap="replace")
    tick(at=on(2, 1))
    [second] = tick(at=on(2, 2))
    row = {"status": "RUNNING", "token": 1, "worker_id": 1, "started_at": on(2, 2), "first_started_at": on(2, 2)}
    Job.objects.filter(pk=second.pk).update(**row)
    assert tick(at=on(2, 3)) == []
    assert not CancelRequest.objects.exists(), "it runs on, as nothing can take its place"
    assert jobs_of(schedule) == {on(2, 1): "CANCELLED", on(2, 2): "RUNNING"}
    assert slots_of(schedule) == {on(2, 1): "job", on(2, 2): "job", on(2, 3): "duplicate"}


def test_replace_cancels_nothing_for_a_key_that_a_job_of_somebody_else_holds() -> None:
    schedule = a_schedule(task="tests.tasks.unique", kwargs={"key": "a"}, overlap="replace")
    [first] = tick(at=on(2, 1))
    Job.objects.filter(pk=first.pk).update(unique_hash=None)
    tasks.unique.enqueue("a")
    assert tick(at=on(2, 2)) == []
    assert jobs_of(schedule) == {on(2, 1): "READY"}


def test_replace_of_a_task_that_is_unique_until_it_starts_replaces_what_runs() -> None:
    a_schedule(task="tests.tasks.unique_until_start", kwargs={"key": "a"}, overlap="replace")
    [first] = tick(at=on(2, 1))
    row = {"status": "RUNNING", "token": 1, "worker_id": 1, "started_at": on(2, 1), "first_started_at": on(2, 1)}
    Job.objects.filter(pk=first.pk).update(unique_hash=None, **row)
    assert len(tick(at=on(2, 2))) == 1
    assert CancelRequest.objects.get().job_id == first.pk
