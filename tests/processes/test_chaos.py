"""A short run of chaos, and the audit of it: that it would find what it looks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs.models import Attempt, Job, Schedule, Slot, SlotRange
from django_reliable_jobs.recurrence import Every
from testproject.chaos.audit import audit
from testproject.chaos.models import Cancellation, Effect, Entry, Receipt, Topic
from testproject.chaos.work import KINDS
from tests.schedules import a_schedule
from tests.workers import CHECKOUT

OPTIONS = ("--minutes=0.2", "--workers=3", "--pause=0.8", "--seed=7")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_short_run_is_violent_and_its_audit_is_clean(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    run = subprocess.run(
        [sys.executable, "manage.py", "chaos", *OPTIONS, f"--json={file}"],
        cwd=CHECKOUT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(file.read_text())
    assert report["findings"] == []
    assert len(report["violence"]["timeline"]) >= 5
    assert report["transactions"]["committed"] > 20
    assert sum(kind["jobs"] for kind in report["jobs"].values()) > 50


# --- what an audit finds, one fault at a time


def job_of(kind: str, status: str = "SUCCEEDED", *, receipt: bool = True, **columns: Any) -> Job:
    """Insert a job that has ended well, but for the columns given."""
    ended = status in Job.ENDED
    columns = {"attempt": 1, "claims": 1, "max_attempts": 50, "finished_at": NOON if ended else None} | columns
    job = Job.objects.create(task=f"chaos.{kind}", status=status, **columns)
    if receipt:
        Receipt.objects.create(kind=kind, job_id=job.pk, created=True)
    return job


def effect(job: Job, name: str, claim: int = 1, item: int | None = None, second: int = 0) -> None:
    at = NOON + timedelta(seconds=second)
    Effect.objects.create(name=name, job_id=job.pk, claim=claim, item=item, pid=1, at=at)


def attempt(job: Job, claim: int, outcome: str) -> None:
    Attempt.objects.create(
        job=job, number=1, claim=claim, outcome=outcome, started_at=NOON, finished_at=NOON, worker="host:1"
    )


def findings() -> dict[str, tuple[int, ...]]:
    with connection.cursor() as cursor:
        return {finding.sentence: finding.job_ids for finding in audit(cursor, KINDS)}


def debit_twice() -> Job:
    job = job_of("atomic")
    for name in ("debit", "credit", "debit"):
        effect(job, name)
    return job


def leave_an_effect_and_die() -> Job:
    job = job_of("atomic", "DEAD", attempt=50, claims=50)
    effect(job, "debit", claim=50)
    attempt(job, 50, "failed")
    return job


def pay_twice() -> Job:
    job = job_of("once", "DEAD", max_attempts=1, claims=2)
    for claim in (1, 2):
        effect(job, "begin", claim, second=claim)
        attempt(job, claim, "lost")
    return job


def write_an_item_twice() -> Job:
    job = job_of("checkpoints")
    for item in range(100):
        effect(job, "item", item=item)
    effect(job, "item", item=50)
    return job


def write_an_item_of_a_batch_twice() -> Job:
    job = job_of("batches")
    for item in [*range(100), 50]:
        effect(job, "item", item=item)
    return job


def lose_an_item_of_a_batch() -> Job:
    job = job_of("batches")
    for item in range(99):
        effect(job, "item", item=item)
    return job


def write_behind_a_fence_that_was_passed() -> Job:
    job = job_of("fenced", claims=2)
    for second, claim in enumerate((1, 2, 1)):
        effect(job, "fenced", claim, second, second)
    attempt(job, 1, "lost")
    return job


def begin_while_another_runs() -> Job:
    job = job_of("plain", claims=2)
    effect(job, "begin", 1, second=0)
    effect(job, "begin", 2, second=1)
    effect(job, "end", 1, second=2)
    effect(job, "end", 2, second=3)
    attempt(job, 1, "interrupted")
    return job


def begin_without_a_trace() -> Job:
    job = job_of("plain", claims=2)
    for claim in (1, 2):
        effect(job, "begin", claim, second=claim)
        effect(job, "end", claim, second=claim)
    return job


def miss_a_change() -> Job:
    Topic.objects.create(name="topic 1", version=5, seen=4)
    job = job_of("unique", args=["topic 1"])
    Job.objects.filter(pk=job.pk).update(task="chaos.index")
    return job


def come_back_after_a_cancel() -> Job:
    job = job_of("cancelled")
    Cancellation.objects.create(job_id=job.pk, at_once=True)
    return job


def serve_a_slot_twice() -> Job:
    jobs = [job_of("schedules", schedule_id=1, slot=NOON) for _ in range(2)]
    Slot.objects.create(schedule_id=1, slot=NOON, outcome="job", job_id=jobs[0].pk)
    return jobs[1]


def call(customer: int, seconds: float) -> Job:
    """A call for this customer that ran for half a second, so long after noon."""
    started = NOON + timedelta(seconds=seconds)
    finished = started + timedelta(seconds=0.5)
    key = f"call:customer={customer}"
    return job_of("limited", concurrency_key=key, started_at=started, finished_at=finished)


def run_beside_another_of_the_key() -> Job:
    call(1, 0)
    call(2, 0.2)
    call(1, 0.5)
    return call(1, 0.7)


def start_too_many_in_a_second() -> Job:
    call(50, -0.5)
    first, *_ = [call(number, number * 0.02) for number in range(43)]
    return first


def order(status: str, *entries: str, **changes: object) -> Job:
    """An order of this status, with these entries in the books."""
    job = job_of("orders", status, **changes)
    Entry.objects.bulk_create([Entry(job_id=job.pk, what=what) for what in entries])
    return job


FAULTS: list[tuple[str, Callable[[], Job]]] = [
    ("a job exists whose enqueue was not committed", lambda: job_of("plain", receipt=False)),
    ("a job has not ended", lambda: job_of("plain", "READY", attempt=0, claims=0)),
    (
        "a job is RUNNING and its worker is not on the list",
        lambda: job_of("plain", "RUNNING", token=1, worker_id=1, started_at=NOON),
    ),
    ("the attempts used are not those of the history", lambda: job_of("bulk", attempt=2, claims=2)),
    ("a job is dead without a reason to be", lambda: job_of("plain", "DEAD")),
    ("a claim that began and did not succeed is missing in the history", begin_without_a_trace),
    ("an attempt wrote after the next one had begun, and was not lost", begin_while_another_runs),
    ("an atomic job that succeeded has not exactly one debit and one credit", debit_twice),
    ("an atomic job that did not succeed has effects", leave_an_effect_and_die),
    ("a job that may be started once was started twice", pay_twice),
    ("an item was written more than once", write_an_item_twice),
    ("an item of a batch was written more than once", write_an_item_of_a_batch_twice),
    ("a job that succeeded has not all the items of its batches", lose_an_item_of_a_batch),
    ("what a loop counts as done is not what it wrote", lose_an_item_of_a_batch),
    ("an attempt that was replaced committed a fenced transaction", write_behind_a_fence_that_was_passed),
    ("the last change of a caller was seen by no job", miss_a_change),
    ("a job that was cancelled at once is not cancelled", come_back_after_a_cancel),
    ("a slot has two jobs", serve_a_slot_twice),
    ("more jobs of a key ran at an instant than its limit allows", run_beside_another_of_the_key),
    ("more jobs of a rate started within a second than it allows", start_too_many_in_a_second),
    ("money was taken that was neither refunded nor shipped for", lambda: order("DEAD", "charged")),
    ("something was done twice", lambda: order("DEAD", "charged", "refunded", "refunded")),
    ("goods are reserved that were not shipped", lambda: order("DEAD", "charged", "refunded", "reserved")),
    ("an order succeeded and was not shipped", lambda: order("SUCCEEDED", "charged", "refunded")),
    ("an order failed and was shipped", lambda: order("DEAD", "charged", "shipped")),
    ("an order could not be undone", lambda: order("DEAD", "charged", compensation="failed")),
    ("an order is cancelled, and nobody cancelled it", lambda: order("CANCELLED")),
    ("a job serves a slot that does not know it", lambda: job_of("schedules", schedule_id=1, slot=NOON)),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("sentence", "commit"), FAULTS, ids=[sentence for sentence, _ in FAULTS])
def test_the_audit_names_the_job_that_breaks_a_promise(sentence: str, commit: Callable[[], Job]) -> None:
    job = commit()
    assert findings().get(sentence) == (job.pk,)


@pytest.mark.django_db
def test_the_audit_names_a_committed_enqueue_without_a_job() -> None:
    Receipt.objects.create(kind="plain", job_id=1, created=True)
    assert findings() == {"a committed enqueue has no job": (1,)}


@pytest.mark.django_db
def test_the_audit_names_what_is_wrong_with_slots() -> None:
    schedule = a_schedule(Every(seconds=1), name="chaos: x", overlap="allow", since=NOON)
    Schedule.objects.filter(pk=schedule.pk).update(
        decided_until=NOON + timedelta(seconds=4), next_run_at=NOON + timedelta(seconds=5)
    )
    moments = [NOON + timedelta(seconds=second) for second in range(5)]
    Slot.objects.create(schedule_id=schedule.pk, slot=moments[0], outcome="job", job_id=7)
    Slot.objects.create(schedule_id=schedule.pk, slot=moments[1], outcome="skipped", reason="overlap")
    told = {"first": moments[3], "last": moments[4], "count": 2, "outcome": "missed", "reason": "misfire"}
    SlotRange.objects.create(schedule_id=schedule.pk, **told)
    assert findings() == {
        "a slot names a job that does not exist": (7,),
        "a decided slot has neither a job nor a reason": (schedule.pk,),
        "a slot of a schedule that catches up with all has no job": (schedule.pk,),
    }
    Slot.objects.create(schedule_id=schedule.pk, slot=moments[2], outcome="skipped", reason="overlap")
    assert "a decided slot has neither a job nor a reason" not in findings()


@pytest.mark.django_db
def test_the_audit_finds_nothing_where_everything_was_kept() -> None:
    job = job_of("atomic", claims=2)
    attempt(job, 1, "lost")
    effect(job, "debit", claim=2)
    effect(job, "credit", claim=2)
    assert findings() == {}
