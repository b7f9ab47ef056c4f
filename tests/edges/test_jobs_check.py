"""`manage.py jobs check`: what a person or a monitor should know of."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from django_reliable_jobs.engine import alerts, findings, leader
from django_reliable_jobs.engine.heartbeat import new_identity
from django_reliable_jobs.engine.leader import Candidate
from django_reliable_jobs.models import Alert, Leader, Schedule
from django_reliable_jobs.testing import at, tick
from tests.edges.jobs_command import failing, jobs, jobs_json
from tests.schedules import a_schedule, on
from tests.states import a_dead_job

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


def a_leader() -> None:
    leader.stand("default", Candidate(name="scheduler", identity=new_identity("host", 1)))


def test_nothing_needs_attention() -> None:
    a_schedule()
    with at(on(2, 0, 30)):
        assert jobs("check") == "Nothing needs attention.\n"
        assert jobs_json("check") == {"status": "ok", "problems": []}


def test_a_broken_schedule_is_critical() -> None:
    a_schedule()
    Schedule.objects.update(task="tests.tasks.gone")
    tick(at=on(2, 1))
    with at(on(2, 1)):
        printed, failure = failing("check", code=2)
        assert printed.startswith(
            "CRITICAL schedule_broken: The schedule hourly is broken since 2026-03-02 01:00:00 UTC"
        )
        assert failure == "1 thing needs attention."
        Schedule.objects.create(**{**Schedule.objects.values().get(), "id": None, "name": "another"})
        assert failing("check", code=2)[1] == "2 things need attention."


def test_moved_runs_are_a_warning() -> None:
    schedule = a_schedule(since=on(2, 0, 10))
    Schedule.objects.filter(pk=schedule.pk).update(planned=[on(2, 1, 1).isoformat()])
    with at(on(2, 0, 30)):
        printed, _ = failing("check", code=1)
    assert "hourly was to run at 2026-03-02 01:01:00 UTC; now it will run at 2026-03-02 01:00:00 UTC, " in printed


def test_an_overdue_slot_without_a_scheduler_is_critical() -> None:
    a_schedule()
    with at(on(2, 1, 2)):
        assert "No scheduler is running, and hourly was due at 2026-03-02 01:00:00 UTC." in failing("check", code=2)[0]
        a_leader()
        Leader.objects.update(expires_at=Now())
        assert "No scheduler is running since " in failing("check", code=2)[0]


def test_all_schedulers_down_for_a_minute_are_critical_long_before_the_next_slot() -> None:
    a_schedule()
    a_leader()
    with at(on(2, 0, 30)):
        Leader.objects.update(expires_at=Now() - timedelta(seconds=55))
        assert jobs("check") == "Nothing needs attention.\n"
        Leader.objects.update(expires_at=Now() - timedelta(seconds=65))
        assert "CRITICAL no_scheduler: No scheduler is running since " in failing("check", code=2)[0]
        a_leader()
        assert jobs("check") == "Nothing needs attention.\n"


def test_a_scheduler_that_leads_and_does_not_tick_is_critical() -> None:
    a_schedule()
    a_leader()
    with at(on(2, 1, 2)):
        printed, _ = failing("check", code=2)
    assert "The scheduler host:1 leads, but 1 schedule is overdue: hourly since 2026-03-02 01:00:00 UTC." in printed


def test_without_schedules_no_scheduler_is_missed() -> None:
    a_leader()
    Leader.objects.update(expires_at=Now() - timedelta(days=1))
    assert jobs("check") == "Nothing needs attention.\n"


def test_the_worst_comes_first_and_decides_the_exit_code() -> None:
    a_dead_job()
    assert failing("check", code=1)[0].startswith("WARNING dead_letters: 1 job of tests.tasks.once died")
    a_schedule()
    with at(on(2, 1, 2)):
        lines = failing("check", code=2)[0].splitlines()
    assert [line.split(":")[0] for line in lines] == ["CRITICAL no_scheduler", "WARNING dead_letters"]


def test_what_happened_lately_is_shown_until_it_is_acknowledged() -> None:
    alerts.note("default", "undo_failed", "shop.refund", "The undo of the step charge of job 7 failed.")
    assert "CRITICAL undo_failed: The undo of the step" in failing("check", code=2)[0]
    alerts.acknowledge("default", [Alert.objects.get().pk], by="ann")
    assert jobs("check") == "Nothing needs attention.\n"


def test_a_script_reads_it_as_json() -> None:
    a_dead_job()
    [finding] = findings.find_all("default")
    printed, _ = failing("check", "--json", code=1)
    assert json.loads(printed) == {
        "status": "warning",
        "problems": [
            {
                "kind": "dead_letters",
                "subject": "tests.tasks.once",
                "severity": "warning",
                "count": 1,
                "message": finding.message,
            }
        ],
    }


def test_a_database_that_was_not_migrated_is_not_known_to_be_well() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_reliable_jobs_leader RENAME TO gone")
        assert failing("check", code=3)[1].startswith("Run manage.py migrate: the database 'default' is not ready (")
        transaction.set_rollback(True)
