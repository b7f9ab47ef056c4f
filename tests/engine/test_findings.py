"""What is not as it should be, judged from the database alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import override_settings

from django_reliable_jobs.engine import findings_of_fleet, findings_of_work, heartbeat, maintenance, queues
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.models import Job, Pulse, Worker
from django_reliable_jobs.testing import at
from tests import tasks
from tests.actors import Actor, on_stage
from tests.schedules import on
from tests.states import a_running_job, a_worker


def found(probe: Callable[[str], list[Finding]]) -> dict[str, str]:
    """The kind of each finding, by its subject."""
    return {each.subject: str(each.kind) for each in probe("default")}


def with_settings(**changes: Any) -> override_settings:
    return override_settings(RELIABLE_JOBS={"TASK_MODULES": ["tests.tasks"], **changes})


@pytest.mark.django_db
class TestQueues:
    def test_one_without_a_worker_is_found_after_a_minute(self) -> None:
        a_worker(serves=["default"])
        with at(on(2)):
            tasks.nothing.using(queue_name="mail").enqueue()
            tasks.nothing.enqueue()
        with at(on(2, 0, 1)):
            assert found(findings_of_work.ageing_queues) == {}
        with at(on(2, 0, 1, 1)):
            assert found(findings_of_work.ageing_queues) == {"mail": "queue_unserved"}

    def test_one_in_which_a_job_waits_too_long_is_found(self) -> None:
        a_worker()
        with at(on(2)):
            tasks.nothing.using(priority=-5).enqueue()
        with at(on(2, 0, 9)):
            tasks.nothing.using(priority=5).enqueue()
        with at(on(2, 0, 10)):
            assert found(findings_of_work.ageing_queues) == {}
        with at(on(2, 0, 10, 1)):
            assert found(findings_of_work.ageing_queues) == {"default": "queue_ageing"}
            with with_settings(ALERT_QUEUE_AGES={"default": timedelta(hours=1)}):
                assert found(findings_of_work.ageing_queues) == {}
            with with_settings(ALERT_QUEUE_AGE=None):
                assert found(findings_of_work.ageing_queues) == {}

    def test_a_job_that_is_due_and_that_nobody_promotes_waits_too(self) -> None:
        a_worker()
        with at(on(2)):
            tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
        with at(on(2, 1, 10)):
            assert found(findings_of_work.ageing_queues) == {}
        with at(on(2, 1, 10, 1)):
            assert found(findings_of_work.ageing_queues) == {"default": "queue_ageing"}

    def test_a_job_with_a_limit_waits_too(self) -> None:
        with at(on(2)):
            job = tasks.nothing.enqueue()
            Job.objects.filter(pk=job.pk).update(rate_key="api", queue_name="limited")
        with at(on(2, 1)):
            assert found(findings_of_work.ageing_queues) == {"limited": "queue_unserved"}

    def test_a_paused_queue_is_left_alone(self) -> None:
        with at(on(2)):
            tasks.nothing.enqueue()
            queues.pause("default", ["default"])
        with at(on(2, 1)):
            assert found(findings_of_work.ageing_queues) == {}


@pytest.mark.django_db
class TestJobs:
    def test_ten_thousand_that_die_of_one_cause_are_one_finding_with_a_count(self) -> None:
        made = tasks.once.enqueue_many([{} for _ in range(10_000)])
        Job.objects.filter(pk__gte=made[0].pk).update(status="DEAD", finished_at=Now(), reason="no dial tone")
        [finding] = findings_of_work.dead_letters("default")
        assert (finding.subject, finding.count) == ("tests.tasks.once", 10_000)
        assert "no dial tone" in finding.message

    def test_those_that_died_more_than_an_hour_ago_do_not_grow(self) -> None:
        job = tasks.once.enqueue()
        Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=on(2))
        with at(on(2, 0, 59)):
            assert found(findings_of_work.dead_letters) == {"tests.tasks.once": "dead_letters"}
            with with_settings(ALERT_DEAD_LETTERS=2):
                assert found(findings_of_work.dead_letters) == {}
        with at(on(2, 1)):
            assert found(findings_of_work.dead_letters) == {}

    def test_one_that_runs_for_more_than_a_day_is_found(self) -> None:
        job = a_running_job()
        assert found(findings_of_work.long_runs) == {}
        Job.objects.filter(pk=job.pk).update(started_at=Now() - timedelta(hours=25))
        [finding] = findings_of_work.long_runs("default")
        assert finding.message.startswith(f"1 job of tests.tasks.nothing runs longer than 1d: {job.pk} since ")

    def test_a_task_without_a_success_in_time_is_found(self) -> None:
        Pulse.objects.create(task="tests.tasks.watched", watched_since=on(2))
        with at(on(2, 1)):
            assert found(findings_of_work.silent_tasks) == {}
        with at(on(2, 1, 0, 1)):
            assert found(findings_of_work.silent_tasks) == {"tests.tasks.watched": "task_silent"}
            Pulse.objects.update(succeeded_at=on(2, 0, 30))
            assert found(findings_of_work.silent_tasks) == {}
        with at(on(2, 1, 30, 1)):
            [finding] = findings_of_work.silent_tasks("default")
        assert finding.message == (
            "The task tests.tasks.watched has not succeeded for more than 1h: its last success was at"
            " 2026-03-02 00:30:00 UTC."
        )


@pytest.mark.django_db
class TestFleet:
    def test_a_silent_worker_whose_jobs_nobody_takes_is_found(self) -> None:
        a_worker(7, expires_at=Now() - timedelta(seconds=61))
        [finding] = findings_of_fleet.silent_workers("default")
        assert (finding.subject, finding.count) == ("host", 1)
        assert "worker host:7 is silent since " in finding.message
        maintenance.rescue("default")
        assert findings_of_fleet.silent_workers("default") == []

    def test_a_host_whose_clock_is_off_is_found_by_the_renewal_of_its_lease(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker = a_worker(7)
        heartbeat.renew("default", worker)
        assert findings_of_fleet.clocks_that_are_off("default") == []
        real = heartbeat.time.time
        monkeypatch.setattr(heartbeat.time, "time", lambda: real() - 42)
        heartbeat.renew("default", worker)
        [finding] = findings_of_fleet.clocks_that_are_off("default")
        assert finding.message.startswith("The clock of host is 42 s behind the database's.")
        Worker.objects.update(expires_at=Now())
        assert findings_of_fleet.clocks_that_are_off("default") == [], "what is gone is not judged"


@pytest.mark.django_db(transaction=True)
def test_an_old_transaction_that_holds_back_vacuum_is_found() -> None:
    with on_stage("reader") as [reader], with_settings(ALERT_OLD_TRANSACTION=timedelta(milliseconds=1)):
        assert not of_process(reader)
        reader.begins()
        reader.does(lambda: tasks.nothing.enqueue())
        assert of_process(reader) == ["old_transaction"]
        reader.rolls_back()
        assert not of_process(reader)


def of_process(actor: Actor) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.01)")  # older than a millisecond by the server's own clock
    return [
        str(each.kind)
        for each in findings_of_fleet.old_transactions("default")
        if each.subject == f"process {actor.backend_pid}"
    ]
