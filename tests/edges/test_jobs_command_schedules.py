"""`manage.py jobs sync-schedules` and `backfill`."""

from __future__ import annotations

import pytest

from django_reliable_jobs.engine import schedules
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.recurrence import Cron, Every
from django_reliable_jobs.testing import at, tick
from tests import tasks
from tests.edges.jobs_command import failing, jobs, jobs_json
from tests.scheduled_tasks import only_declared
from tests.schedules import a_schedule, on

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


class TestSyncSchedules:
    def test_it_tells_what_became_of_each(self) -> None:
        with only_declared(("a", Cron("0 2 * * *"), {}), ("b", Every(hours=1), {})):
            assert jobs("sync-schedules") == "Created: a\nCreated: b\n"
            schedules.edit("default", Schedule.objects.get(name="a").pk, priority=5)
            assert jobs("sync-schedules") == (
                "Unchanged: a\n  overridden by an operator, and left so: priority\nUnchanged: b\n"
            )
        with only_declared(("b", Every(hours=2), {})):
            answer = jobs_json("sync-schedules", "--dry-run")
            actions = [(each["name"], each["action"]) for each in answer["schedules"]]
            assert actions == [
                ("a", "paused"),
                ("b", "changed"),
            ]
            assert "Nothing was written" in jobs("sync-schedules", "--dry-run")
        assert Schedule.objects.get(name="b").recurrence == Every(hours=1).as_dict()

    def test_what_can_not_follow_makes_it_fail(self) -> None:
        a_schedule(name="a")
        with only_declared(("a", Cron("0 2 * * *"), {})):
            printed, failure = failing("sync-schedules")
        assert "Left alone: a (an operator made" in printed
        assert failure == "Not in line with the code: a."

    def test_without_declarations_it_says_so(self) -> None:
        with only_declared():
            assert jobs("sync-schedules") == "No schedule is declared in code.\n"


class TestBackfill:
    def test_it_makes_the_jobs_of_a_span_once(self) -> None:
        schedule = a_schedule()
        span = ("--from", "2026-03-02T01:00", "--to", "2026-03-02T03:30")
        with at(on(2, 12)):
            assert jobs("backfill", "hourly", *span, "--dry-run").startswith(
                "Would make 3 jobs of hourly:\n  2026-03-02 01:00"
            )
            assert not Job.objects.exists()
            assert len(jobs_json("backfill", "hourly", *span)["job_ids"]) == 3
            assert jobs("backfill", "hourly", *span) == (
                "Made 0 jobs of hourly.\n3 slots of the span have a job already.\n"
            )
        assert Job.objects.filter(schedule_id=schedule.pk).count() == 3

    def test_it_says_what_it_refuses(self) -> None:
        span = ("--from", "2026-03-02T01:00", "--to", "2026-03-02T03:30")
        assert failing("backfill", "nightly", *span)[1] == "Nothing was made: there is no schedule 'nightly'."
        a_schedule()
        with at(on(2, 2)):
            assert "lies in the future" in failing("backfill", "hourly", *span)[1]


class TestShow:
    def test_a_job_names_its_schedule(self) -> None:
        schedule = a_schedule()
        [job] = tick(at=on(2, 1))
        lines = [line.split() for line in jobs("show", job.pk).splitlines()]
        assert ["schedule", "hourly"] in lines
        assert ["slot", "2026-03-02", "01:00:00", "UTC"] in lines
        schedules.delete("default", [schedule.pk])
        assert f"{schedule.pk}, deleted since" in jobs("show", job.pk)
        assert "schedule  " not in jobs("show", tasks.nothing.enqueue().pk)
