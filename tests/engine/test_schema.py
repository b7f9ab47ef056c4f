"""What the database refuses and how its tables are kept, whoever writes in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, connection, models, transaction

from django_reliable_jobs.models import Job
from tests import factories

pytestmark = pytest.mark.django_db

# By constraint: what makes a job, and what would make it a liar.
LIES: dict[str, list[tuple[type, dict[str, Any]]]] = {
    "reliable_job_priority_in_range": [
        (factories.ReadyJobFactory, {"priority": 101}),
        (factories.ReadyJobFactory, {"priority": -101}),
    ],
    "reliable_job_running_has_owner": [
        (factories.ReadyJobFactory, {"status": "RUNNING"}),
        (factories.RunningJobFactory, {"token": None}),
        (factories.RunningJobFactory, {"worker_id": None}),
        (factories.RunningJobFactory, {"started_at": None}),
    ],
    "reliable_job_ended_has_moment": [
        *[(factories.RunningJobFactory, {"status": each}) for each in ("SUCCEEDED", "DEAD", "CANCELLED")],
        (factories.DeadJobFactory, {"finished_at": None}),
        *[
            (factories.SucceededJobFactory, {"status": status})
            for status in ("SCHEDULED", "READY", "RUNNING", "WAITING")
        ],
        (factories.ReadyJobFactory, {"status": "ready"}),
        (factories.SucceededJobFactory, {"status": "FAILED"}),
        (factories.ReadyJobFactory, {"finished_at": datetime(2026, 7, 1, tzinfo=UTC)}),
    ],
    "reliable_job_counts_in_range": [
        (factories.ReadyJobFactory, {"attempt": -1}),
        (factories.ReadyJobFactory, {"attempt": 1}),  # an attempt that nobody claimed
        (factories.ReadyJobFactory, {"max_attempts": 0}),
        (factories.ReadyJobFactory, {"losses": -1}),
        (factories.ReadyJobFactory, {"run": 0}),
    ],
}


def test_every_check_of_a_job_has_its_lies() -> None:
    checks = {each.name for each in Job._meta.constraints if isinstance(each, models.CheckConstraint)}
    assert set(LIES) == checks


@pytest.mark.parametrize(
    ("constraint", "factory", "lie"),
    [(constraint, *lie) for constraint, lies in LIES.items() for lie in lies],
    ids=lambda each: str(each)[:60] if isinstance(each, dict) else "",
)
def test_the_database_refuses_a_row_that_would_lie(constraint: str, factory: Any, lie: dict[str, Any]) -> None:
    job = factory()
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(**lie)


def test_a_key_is_held_by_one_live_job_and_by_any_number_of_ended_ones() -> None:
    key = b"k" * 16
    for factory in (factories.SucceededJobFactory, factories.DeadJobFactory, factories.CancelledJobFactory):
        factory.create_batch(2, unique_hash=key)
    factories.RunningJobFactory(unique_hash=key)
    for factory in (factories.ReadyJobFactory, factories.ScheduledJobFactory, factories.WaitingJobFactory):
        with pytest.raises(IntegrityError, match="reliable_job_unique"), transaction.atomic():
            factory(unique_hash=key)


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ("job", {"autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=20000"}),
        ("worker", {"autovacuum_vacuum_scale_factor=0", "fillfactor=50"}),
    ],
)
def test_a_table_that_changes_all_the_time_is_vacuumed_however_long_its_history(table: str, wanted: set[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE oid = %s::regclass", [f"django_reliable_jobs_{table}"])
        assert wanted <= set(cursor.fetchone()[0])
