"""Jobs that do not run are moved, get another priority, or are deleted; others stay as they are."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from django_reliable_jobs.engine import rearranging, revival
from django_reliable_jobs.models import Attempt, Checkpoint, Job, Progress
from tests import tasks
from tests.claims import row
from tests.factories import CancelledJobFactory, DeadJobFactory, RunningJobFactory, SucceededJobFactory
from tests.states import a_worker, claim_one

pytestmark = pytest.mark.django_db


def one_of_each() -> dict[str, Job]:
    later = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
    waiting = tasks.nothing.enqueue()
    Job.objects.filter(pk=waiting.pk).update(status="WAITING")
    return {
        "SCHEDULED": later,
        "READY": tasks.nothing.enqueue(),
        "WAITING": waiting,
        "RUNNING": RunningJobFactory(),
        "SUCCEEDED": SucceededJobFactory(),
        "DEAD": DeadJobFactory(),
        "CANCELLED": CancelledJobFactory(),
    }


def test_what_does_not_run_is_moved() -> None:
    jobs = one_of_each()
    ids = [job.pk for job in jobs.values()]
    at_rest = [jobs[status].pk for status in ("SCHEDULED", "READY", "WAITING")]
    assert rearranging.move("default", ids, "urgent") == sorted(at_rest)
    assert rearranging.move("default", ids, "urgent") == [], "they are there"
    assert {row(job).queue_name for status, job in jobs.items() if job.pk in at_rest} == {"urgent"}
    assert row(jobs["RUNNING"]).queue_name != "urgent"


def test_a_moved_job_is_claimed_from_its_new_queue() -> None:
    job = tasks.nothing.enqueue()
    rearranging.move("default", [job.pk], "urgent")
    assert claim_one(a_worker(), "urgent") == job.pk


def test_what_does_not_run_gets_another_priority() -> None:
    jobs = one_of_each()
    changed = rearranging.reprioritise("default", [job.pk for job in jobs.values()], 50)
    assert changed == sorted(jobs[status].pk for status in ("SCHEDULED", "READY", "WAITING"))
    assert row(jobs["READY"]).priority == 50


def test_what_has_ended_is_deleted_with_all_that_belongs_to_it() -> None:
    jobs = one_of_each()
    dead, now = jobs["DEAD"], timezone.now()
    Attempt.objects.create(job=dead, number=1, claim=1, outcome="failed", started_at=now, finished_at=now, worker="x")
    Checkpoint.objects.create(job=dead, run=1, name="x", value=1, token=1, saved_at=now)
    Progress.objects.create(token=1, job=dead, run=1, claim=1, done=1, told_at=now)
    deleted = rearranging.delete("default", [job.pk for job in jobs.values()])
    assert deleted == sorted(jobs[status].pk for status in ("SUCCEEDED", "DEAD", "CANCELLED"))
    assert not Attempt.objects.exists() and not Checkpoint.objects.exists() and not Progress.objects.exists()
    assert Job.objects.count() == 4


def test_a_child_is_kept_until_its_parent_has_ended() -> None:
    parent = tasks.nothing.enqueue()
    child = SucceededJobFactory()
    Job.objects.filter(pk=child.pk).update(parent_id=parent.pk)
    assert rearranging.delete("default", [child.pk]) == []
    Job.objects.filter(pk=parent.pk).update(status="SUCCEEDED", finished_at=Now())
    assert rearranging.delete("default", [child.pk]) == [child.pk]


def test_a_retry_may_be_spread_over_time() -> None:
    dead = [DeadJobFactory() for _ in range(20)]
    before = timezone.now()
    assert len(revival.revive("default", [job.pk for job in dead], spread=timedelta(hours=1)).revived) == 20
    found = [row(job) for job in dead]
    assert {job.status for job in found} == {"SCHEDULED"}
    waits = [(job.run_after - before).total_seconds() for job in found]
    assert -1 < min(waits) < max(waits) < 3605
    assert max(waits) - min(waits) > 600
