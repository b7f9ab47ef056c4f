"""What becomes of a duplicate: keep, replace, postpone, raise."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_reliable_jobs.engine.transaction import READ_COMMITTED
from django_reliable_jobs.exceptions import DuplicateJob
from django_reliable_jobs.models import Checkpoint, Job
from django_reliable_jobs.testing import at, run_jobs
from tests.engine.test_unique import LIVE, NOON, bring_to, keeps, postpones, raises, replaces
from tests.rows import in_the_table, values

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("status", LIVE)
def test_keep_changes_nothing(status: str) -> None:
    job = bring_to(keeps.enqueue(1), status)
    before = in_the_table(job)
    found = keeps.using(priority=9, run_after=timedelta(days=1)).enqueue(1, "half")
    assert values(found) == in_the_table(job) == before


@pytest.mark.parametrize("status", LIVE)
def test_replace_gives_a_job_that_has_not_started_the_new_arguments(status: str) -> None:
    job = bring_to(replaces.using(priority=3).enqueue(1, "old"), status)
    before = in_the_table(job)
    found = replaces.using(priority=9).enqueue(order_id=1, kind="new")
    changed = {"args": [], "kwargs": {"order_id": 1, "kind": "new"}} if status in ("SCHEDULED", "READY") else {}
    assert not found.created
    assert values(found) == in_the_table(job) == {**before, **changed}


@pytest.mark.parametrize("task", [replaces, postpones])
@pytest.mark.parametrize("status", ["SCHEDULED", "READY"])
@pytest.mark.parametrize("has", ["kept a step", "to undo"])
def test_a_job_that_goes_on_keeps_its_arguments_and_its_place(task: Any, status: str, has: str) -> None:
    job = bring_to(task.enqueue(1, "old"), status)
    if has == "kept a step":
        Checkpoint.objects.create(job=job, run=job.run, name="charge", value=1, token=7, saved_at=NOON)
    else:
        Job.objects.filter(pk=job.pk).update(compensation="running")
    before = in_the_table(job)
    assert not task.using(run_after=timedelta(hours=1)).enqueue(order_id=1, kind="new").created
    assert in_the_table(job) == before


@pytest.mark.parametrize("status", ["WAITING", "RUNNING"])
def test_postpone_leaves_a_job_that_has_started_alone(status: str) -> None:
    job = bring_to(postpones.enqueue(1), status)
    before = in_the_table(job)
    assert values(postpones.using(run_after=timedelta(hours=1)).enqueue(1)) == before


def test_postpone_moves_the_due_moment_and_what_hangs_on_it() -> None:
    with at(NOON):
        job = postpones.using(run_after=timedelta(minutes=5)).enqueue(1, "first")
    with at(NOON + timedelta(minutes=2)):
        found = postpones.using(run_after=timedelta(minutes=5)).enqueue(1, "second")
    assert (found, found.created, found.status) == (job, False, "SCHEDULED")
    assert found.run_after == NOON + timedelta(minutes=7)
    assert found.expires_at == NOON + timedelta(minutes=8)
    assert (found.args, found.created_at) == ([1, "first"], NOON)
    assert values(found) == in_the_table(job)


def test_postpone_makes_a_ready_job_wait() -> None:
    with at(NOON):
        job = postpones.enqueue(1)
        found = postpones.using(run_after=timedelta(minutes=1)).enqueue(1)
        assert (job.status, found.status, found.run_after) == ("READY", "SCHEDULED", NOON + timedelta(minutes=1))
        assert run_jobs() == []


def test_postpone_sends_a_ready_job_to_the_end_of_the_line() -> None:
    with at(NOON):
        job = postpones.enqueue(1)
    with at(NOON + timedelta(seconds=30)):
        found = postpones.enqueue(1)
    assert (found, found.status, found.run_after) == (job, "READY", NOON + timedelta(seconds=30))


def test_postpone_never_brings_a_job_forward() -> None:
    with at(NOON):
        job = postpones.using(run_after=timedelta(hours=1)).enqueue(1)
        for run_after in (None, timedelta(minutes=1), NOON - timedelta(days=1)):
            found = postpones.using(run_after=run_after).enqueue(1)
            assert (found.status, found.run_after) == ("SCHEDULED", NOON + timedelta(hours=1))
            assert found.expires_at == job.expires_at


@pytest.mark.parametrize("status", LIVE)
def test_raise_names_the_job_and_leaves_the_transaction_usable(status: str) -> None:
    job = bring_to(raises.enqueue(1), status)
    before = in_the_table(job)
    with transaction.atomic():
        with pytest.raises(DuplicateJob, match=rf"job {job.pk} of task .*raises holds the same unique key") as caught:
            raises.enqueue(1, "half")
        assert values(caught.value.job) == before
        assert raises.enqueue(2).created
    assert Job.objects.count() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("function", [keeps, replaces, postpones])
def test_a_duplicate_is_found_in_autocommit_too(function: Any) -> None:
    job = function.enqueue(1, "old")
    found = function.using(run_after=timedelta(hours=1)).enqueue(1, "new")
    assert (found, found.created) == (job, False)
    assert found.args[1] == ("new" if function is replaces else "old")
    assert found.status == ("SCHEDULED" if function is postpones else "READY")
    assert values(found) == in_the_table(job)


@pytest.mark.django_db(transaction=True)
def test_raise_in_autocommit() -> None:
    job = raises.enqueue(1)
    with pytest.raises(DuplicateJob) as caught:
        raises.enqueue(1)
    assert caught.value.job == job
    assert Job.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("function", [replaces, postpones])
def test_in_autocommit_a_duplicate_is_found_and_treated_in_one_transaction(function: Any) -> None:
    function.enqueue(1)
    with CaptureQueriesContext(connection) as captured:
        function.enqueue(1)
    sent = [query["sql"].removeprefix(f"{READ_COMMITTED}; ").split()[0] for query in captured.captured_queries]
    assert sent == ["INSERT", "BEGIN", READ_COMMITTED.split()[0], "WITH", "UPDATE", "COMMIT"]
