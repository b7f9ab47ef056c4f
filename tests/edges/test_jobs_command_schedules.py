"""`manage.py jobs sync-schedules`, `backfill` and `check`."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now

from django_reliable_jobs.engine import leader, schedules
from django_reliable_jobs.engine.heartbeat import new_identity
from django_reliable_jobs.engine.leader import Candidate
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.recurrence import Cron, Every
from django_reliable_jobs.testing import at, tick
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


class TestCheck:
    def test_nothing_needs_attention(self) -> None:
        a_schedule()
        with at(on(2, 0, 30)):
            assert jobs("check") == "Nothing needs attention.\n"
            assert jobs_json("check") == {"problems": []}

    def test_a_broken_schedule_does(self) -> None:
        a_schedule()
        Schedule.objects.update(task="tests.tasks.gone")
        tick(at=on(2, 1))
        printed, failure = failing("check")
        assert "The schedule hourly is broken since 2026-03-02 01:00:00 UTC: UnknownTask" in printed
        assert failure == "1 thing needs attention."
        Schedule.objects.create(**{**Schedule.objects.values().get(), "id": None, "name": "another"})
        assert failing("check")[1] == "2 things need attention."

    def test_moved_runs_do(self) -> None:
        schedule = a_schedule(since=on(2, 0, 10))
        Schedule.objects.filter(pk=schedule.pk).update(planned=[on(2, 1, 1).isoformat()])
        with at(on(2, 0, 30)):
            printed, _ = failing("check")
        assert "hourly was to run at 2026-03-02 01:01:00 UTC; now it will run at 2026-03-02 01:00:00 UTC, " in printed

    def test_an_overdue_slot_without_a_scheduler_does(self) -> None:
        a_schedule()
        assert "No scheduler is running, and hourly was due at 2026-03-02 01:00:00 UTC." in failing("check")[0]
        leader.stand("default", Candidate(name="scheduler", identity=new_identity("host", 1)))
        assert jobs("check") == "Nothing needs attention.\n"
        from django_reliable_jobs.models import Leader

        Leader.objects.update(expires_at=Now())
        assert "No scheduler" in failing("check")[0]
