"""The dead man's switch of schedules, and schedules that fail."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from django_reliable_jobs.engine import findings_of_schedules, maintenance, schedule_upkeep, schedules
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.recurrence import Once
from django_reliable_jobs.testing import at, run_jobs, tick
from tests.schedules import a_schedule, on

pytestmark = pytest.mark.django_db

DAY = timedelta(hours=26)


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


def is_silent(moment: datetime) -> bool:
    with at(moment):
        return [each.subject for each in findings_of_schedules.silent("default")] == ["hourly"]


def succeeds(moment: datetime) -> None:
    with at(moment):
        tick()
        assert [job.status for job in run_jobs()] == ["SUCCEEDED"]


def messages(probe: Callable[[str], list[Finding]], moment: datetime) -> list[str]:
    with at(moment):
        return [each.message for each in probe("default")]


def test_one_that_never_succeeded_counts_from_its_making() -> None:
    a_schedule(alert_after=DAY)
    assert not is_silent(on(3, 2))
    assert is_silent(on(3, 2, 0, 1))
    [message] = messages(findings_of_schedules.silent, on(4))
    assert message == "The schedule hourly has not succeeded for more than 26h: never since 2026-03-02 00:00:00 UTC."


def test_each_success_puts_it_off() -> None:
    a_schedule(alert_after=DAY)
    succeeds(on(3, 1))
    assert not is_silent(on(4, 3))
    assert is_silent(on(4, 3, 0, 1))
    [message] = messages(findings_of_schedules.silent, on(5))
    assert message.endswith("its last success was at 2026-03-03 01:00:00 UTC.")


def test_jobs_that_die_are_no_success() -> None:
    a_schedule(alert_after=DAY, task="tests.tasks.once")
    with at(on(2, 1)):
        [job] = tick()
        Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=on(2, 1))
    assert is_silent(on(3, 3))


def test_one_without_a_switch_is_never_silent() -> None:
    a_schedule()
    assert not is_silent(on(30))


def test_a_pause_is_no_silence_and_its_end_starts_the_watch_anew() -> None:
    schedule = a_schedule(alert_after=DAY)
    with at(on(2, 1)):
        schedules.pause("default", [schedule.pk])
    assert not is_silent(on(9))
    with at(on(10)):
        schedules.resume("default", [schedule.pk])
    assert not is_silent(on(11, 2))
    assert is_silent(on(11, 2, 0, 1))


def test_a_pause_that_ran_out_starts_the_watch_anew_whether_or_not_somebody_cleared_it() -> None:
    schedule = a_schedule(alert_after=DAY)
    with at(on(2, 1)):
        schedules.pause("default", [schedule.pk], resume_at=on(10))
    for look in ("not yet cleared", "cleared"):
        assert not is_silent(on(11, 2)), look
        assert is_silent(on(11, 2, 0, 1)), look
        with at(on(10, 1)):
            tick()


def test_one_that_starts_later_is_watched_from_its_start() -> None:
    a_schedule(alert_after=DAY, starts_at=on(10))
    assert not is_silent(on(11, 2))
    assert is_silent(on(11, 2, 0, 1))


def test_one_that_ran_its_last_slot_owes_nothing() -> None:
    a_schedule(Once(at=on(2, 1)), alert_after=DAY)
    succeeds(on(2, 1))
    assert not is_silent(on(30))


def test_one_whose_last_slot_failed_does() -> None:
    a_schedule(Once(at=on(2, 1)), alert_after=DAY)
    with at(on(2, 1)):
        tick()
    assert is_silent(on(30))


def test_a_success_counts_also_when_its_job_was_pruned_by_age(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"RETENTION": {"SUCCEEDED": timedelta(hours=2)}, "TASK_MODULES": ["tests.tasks"]}
    a_schedule(alert_after=DAY)
    succeeds(on(3, 1))
    with at(on(3, 4)):
        maintenance.prune("default")
    assert not Job.objects.exists()
    assert not is_silent(on(4, 3))
    assert is_silent(on(4, 3, 0, 1))


def test_a_success_counts_also_when_its_job_was_pruned_by_number() -> None:
    a_schedule(alert_after=DAY, keep_succeeded=0)
    succeeds(on(3, 1))
    with at(on(3, 1, 5)):
        schedule_upkeep.prune_jobs("default")
    assert not Job.objects.exists()
    assert not is_silent(on(4, 3))
    assert is_silent(on(4, 3, 0, 1))


def test_one_that_ran_its_last_slot_owes_nothing_also_when_that_job_was_pruned() -> None:
    a_schedule(Once(at=on(2, 1)), alert_after=DAY, keep_succeeded=0)
    succeeds(on(2, 1))
    schedule_upkeep.prune_jobs("default")
    assert not Job.objects.exists()
    assert not is_silent(on(30))


def test_three_jobs_in_a_row_that_die_are_a_failing_schedule_until_one_succeeds() -> None:
    schedule = a_schedule()
    for hour in (1, 2, 3):
        assert messages(findings_of_schedules.failing, on(2, hour)) == []
        with at(on(2, hour)):
            [job] = tick()
            Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=on(2, hour), reason="no dial tone")
    assert messages(findings_of_schedules.failing, on(2, 4)) == [
        "The last 3 jobs of the schedule hourly died, the first of them at 2026-03-02 01:00:00 UTC."
        " The newest: no dial tone"
    ]
    succeeds(on(2, 4))
    assert messages(findings_of_schedules.failing, on(2, 5)) == []
    assert Schedule.objects.get(pk=schedule.pk).error == ""
