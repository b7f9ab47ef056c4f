"""A job to which a row of the project refers is kept; it stops no other from being pruned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_reliable_jobs.engine import maintenance, references, schedule_upkeep
from django_reliable_jobs.models import Job
from tests.factories import CancelledJobFactory, SucceededJobFactory
from tests.schedules import a_schedule

pytestmark = pytest.mark.django_db(transaction=True)


def in_sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture
def invoice() -> Iterator[None]:
    """Two tables of the project: one forbids, at COMMIT as Django's do, to delete a job; one follows it."""
    reference = "REFERENCES django_reliable_jobs_job"
    in_sql(f'CREATE TABLE "in%voice" ("job{{}}" bigint {reference} DEFERRABLE INITIALLY DEFERRED)')
    in_sql(f"CREATE TABLE follower (job_id bigint {reference} ON DELETE CASCADE)")
    references._told.clear()
    yield
    in_sql('DROP TABLE "in%voice", follower')


def old_jobs(count: int) -> list[Job]:
    return [SucceededJobFactory(finished_at=timezone.now() - timedelta(days=8, minutes=-n)) for n in range(count)]


def refer_to(job: Job) -> None:
    in_sql(f'INSERT INTO "in%voice" VALUES ({job.pk})')


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.usefixtures("invoice")
def test_only_the_job_that_is_referred_to_is_kept_and_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintenance, "BATCH", 2)
    jobs, cancelled = old_jobs(7), CancelledJobFactory(finished_at=timezone.now() - timedelta(days=8))
    refer_to(jobs[0])
    refer_to(jobs[3])
    in_sql(f"INSERT INTO follower VALUES ({jobs[1].pk})")
    for deleted in (6, 0):
        assert maintenance.prune("default") == deleted
    assert set(Job.objects.all()) == {jobs[0], jobs[3]}
    assert cancelled not in Job.objects.all()
    [warning] = warnings(caplog)
    assert "2 ended jobs (SUCCEEDED)" in warning
    assert f'"in%voice"."job{{}}" refers to them: job {jobs[0].pk} is one' in warning


@pytest.mark.usefixtures("invoice")
def test_in_a_transaction_with_others_it_costs_them_nothing() -> None:
    [kept, _] = old_jobs(2)
    refer_to(kept)
    with transaction.atomic():  # as the upkeep of a scheduler does
        assert maintenance.prune("default", batches=1) == 1
    assert list(Job.objects.all()) == [kept]


@pytest.mark.usefixtures("invoice")
def test_jobs_beyond_what_a_schedule_keeps_too() -> None:
    schedule = a_schedule(keep_succeeded=1)
    jobs = [
        SucceededJobFactory(finished_at=timezone.now() - timedelta(minutes=minute), schedule_id=schedule.pk)
        for minute in range(4)
    ]
    refer_to(jobs[2])
    schedule_upkeep.prune_jobs("default")
    assert set(Job.objects.all()) == {jobs[0], jobs[2]}


@pytest.mark.usefixtures("invoice")
def test_once_nothing_refers_to_it_a_job_goes() -> None:
    [job] = old_jobs(1)
    refer_to(job)
    assert maintenance.prune("default") == 0
    in_sql('DELETE FROM "in%voice"')
    assert maintenance.prune("default") == 1


def test_without_tables_that_refer_to_jobs_nothing_is_asked_of_them() -> None:
    assert references.find("default") == []
    assert references.is_free([]) == "true"
