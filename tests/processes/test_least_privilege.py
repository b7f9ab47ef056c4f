"""The rights that the documentation gives to each kind of process are enough, and the web's are not too many."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import ProgrammingError, connection, transaction

from django_reliable_jobs import Batch, Every, emit_event, task
from django_reliable_jobs.engine import schedules
from django_reliable_jobs.models import Alert, Job, Schedule
from django_reliable_jobs.schedule_options import ScheduleOptions
from tests import limited_tasks, step_tasks, tasks
from tests.actors import wait_for
from tests.edges.jobs_command import jobs_json
from tests.pages import DOCS, blocks_of
from tests.workers import WorkerProcess

ROLES = ("jobs_web", "jobs_worker", "jobs_scheduler", "jobs_monitor")
SUFFIX = f"_{os.getpid()}"  # roles are the server's: another run of the tests may have its own


@task(unique="key", on_duplicate="replace")
def replaces(key: str, value: int) -> None: ...


@task(unique="key", on_duplicate="postpone")
def postpones(key: str) -> None: ...


@pytest.fixture
def roles(transactional_db: None) -> Iterator[None]:
    """The roles of the page, with the rights of the page; they may do with the tests' own tables what they like."""
    grants = [block.code for block in blocks_of(DOCS / "how-to" / "least-privilege.md") if block.language == "sql"]
    assert len(grants) == 5
    create, *grants = (re.sub(rf"\b({'|'.join(ROLES)})\b", rf"\1{SUFFIX}", statements) for statements in grants)
    everybody = ", ".join(role + SUFFIX for role in ROLES)
    with connection.cursor() as cursor:
        cursor.execute(create)
    try:
        with connection.cursor() as cursor:
            for statements in grants:
                cursor.execute(statements)
            cursor.execute("SELECT string_agg(tablename, ', ') FROM pg_tables WHERE tablename LIKE 'tests\\_%'")
            cursor.execute(f"GRANT ALL ON {cursor.fetchone()[0]} TO {everybody}")
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP OWNED BY {everybody}")
            cursor.execute(f"DROP ROLE {everybody}")


@contextmanager
def as_role(role: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {role}{SUFFIX}")
        try:
            yield
        finally:
            cursor.execute("RESET ROLE")


def of_role(role: str) -> dict[str, str]:
    """The environment of a process whose sessions have the role's rights from their first statement on."""
    return {"TESTS_DATABASE_OPTIONS": json.dumps({"options": f"-c role={role}{SUFFIX}"})}


def test_the_web_enqueues_and_a_worker_runs_what_tasks_can_be(
    roles: None, start_worker: Callable[..., WorkerProcess]
) -> None:
    with as_role("jobs_web"):
        jobs = [
            tasks.effect.enqueue("ordinary"),
            tasks.unique.enqueue("a key"),
            tasks.unique.enqueue("a key"),
            tasks.fails_until.enqueue(2),
            tasks.atomic_nothing.enqueue(),
            tasks.dies_and_is_buried.enqueue(),
            limited_tasks.one_at_a_time.enqueue(),
            step_tasks.waits.enqueue("shipped"),
            step_tasks.has_one_child.enqueue(),
            step_tasks.makes_three.enqueue("makes"),
            *tasks.nothing.enqueue_many([{"number": number} for number in range(3)]),
        ]
        emit_event("shipped", 1)
        with Batch(on_finish=step_tasks.follows_a_batch) as batch:
            batch.enqueue(tasks.effect, "one of a batch")
        Batch(on_finish=step_tasks.follows_a_batch).enqueue_many(tasks.effect, [])
        undone = step_tasks.makes_three.enqueue()
    worker = start_worker(environment=of_role("jobs_worker"))
    wait_for(lambda: not Job.objects.filter(status__in=Job.LIVE).exists(), what="all jobs to end")
    assert set(Job.objects.filter(pk__in=[job.pk for job in jobs]).exclude(status="SUCCEEDED")) == {jobs[5]}
    undone.refresh_from_db()
    assert (undone.status, undone.compensation) == ("DEAD", "done")
    assert Job.objects.filter(task=step_tasks.follows_a_batch.name, status="SUCCEEDED").count() == 2
    assert "permission denied" not in worker.output


def test_the_web_replaces_and_postpones_duplicates(roles: None) -> None:
    with as_role("jobs_web"):
        replaced, postponed = replaces.enqueue("key", 1), postpones.enqueue("key")
        assert replaces.enqueue("key", 2).pk == replaced.pk
        assert postpones.using(run_after=timedelta(hours=1)).enqueue("key").pk == postponed.pk
    replaced.refresh_from_db()
    postponed.refresh_from_db()
    assert replaced.args == ["key", 2]
    assert postponed.status == "SCHEDULED"


def test_a_scheduler_makes_jobs_and_tells_of_alerts(roles: None, start_worker: Callable[..., WorkerProcess]) -> None:
    Schedule.objects.all().delete()
    schedule = schedules.create(
        "default",
        name="often",
        task="tests.tasks.nothing",
        options=ScheduleOptions(recurrence=Every(seconds=1), overlap="replace", alert_after=timedelta(seconds=1)),
    )
    scheduler = start_worker(command="runscheduler", ready=False, environment=of_role("jobs_scheduler"))
    wait_for(lambda: Job.objects.filter(schedule_id=schedule.pk).count() >= 3, what="three jobs")
    wait_for(lambda: Alert.objects.filter(kind="schedule_silent").exists(), what="an alert, as nobody runs them")
    assert "permission denied" not in scheduler.output


def test_a_worker_under_its_rights_takes_back_what_a_lost_one_held(
    roles: None, start_worker: Callable[..., WorkerProcess]
) -> None:
    job = tasks.slow_once.enqueue(60)
    settings: dict[str, Any] = {"LEASE_SECONDS": 2}
    lost = start_worker(environment=of_role("jobs_worker"), settings=settings)
    wait_for(lambda: Job.objects.get(pk=job.pk).status == "RUNNING", what="the job to run")
    lost.kill()
    other = start_worker(environment=of_role("jobs_worker"), settings=settings)
    wait_for(lambda: Job.objects.get(pk=job.pk).status == "SUCCEEDED", what="the job to run again")
    assert "permission denied" not in other.output


def test_a_monitor_only_reads(roles: None) -> None:
    tasks.nothing.enqueue()
    with as_role("jobs_monitor"):
        assert jobs_json("status")
        jobs_json("list")
        with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            tasks.nothing.enqueue()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM django_reliable_jobs_job",
        "UPDATE django_reliable_jobs_job SET token = 1",
        "UPDATE django_reliable_jobs_job SET task = 'another'",
        "DELETE FROM django_reliable_jobs_slot",
        "UPDATE django_reliable_jobs_worker SET expires_at = now()",
        "UPDATE django_reliable_jobs_schedule SET task = 'another'",
    ],
)
def test_the_web_can_not_end_jobs_nor_touch_the_fleet(roles: None, statement: str) -> None:
    refused = pytest.raises(ProgrammingError, match="permission denied")
    with as_role("jobs_web"), refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
