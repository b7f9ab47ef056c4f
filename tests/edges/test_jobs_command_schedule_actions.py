"""`manage.py jobs schedules`, `run-schedule`, `pause-schedule` and `resume-schedule`."""

from __future__ import annotations

import pytest

from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.testing import at, tick
from tests.edges.jobs_command import failing, jobs, jobs_json
from tests.schedules import a_schedule, on, slots_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


class TestSchedules:
    def test_it_lists_state_next_run_and_last_run(self) -> None:
        a_schedule(Cron("30 2 * * *", timezone="Europe/Berlin"), name="nightly")
        a_schedule(name="broken")
        a_schedule(Once(at=on(2, 1)), name="once")
        Schedule.objects.filter(name="broken").update(task="gone")
        [job] = tick(at=on(2, 1))
        Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=on(2, 1, 10))
        with at(on(2, 1, 15)):
            lines = [" ".join(line.split()) for line in jobs("schedules").splitlines()]
            data = {each["name"]: each for each in jobs_json("schedules")["schedules"]}
        assert lines == [
            "SCHEDULE STATE NEXT RUN LAST RUN RUNS",
            "broken broken 15 min ago - At minute 0 of every hour, every day (UTC)",
            "nightly active in 15 min - At 02:30, every day (Europe/Berlin)",
            f"once ended - DEAD 5 min ago {Once(at=on(2, 1)).describe().removesuffix('.')}",
        ]
        assert {name: each["state"] for name, each in data.items()} == {
            "broken": "broken",
            "nightly": "active",
            "once": "ended",
        }
        assert data["once"]["last_job"]["id"] == job.pk

    def test_without_schedules_it_says_so(self) -> None:
        assert jobs("schedules") == "There is no schedule.\n"

    def test_it_takes_a_fixed_number_of_queries(self, django_assert_num_queries: pytest.FixtureRequest) -> None:
        for number in range(3):
            a_schedule(Every(hours=1), name=f"s{number}")
            with django_assert_num_queries(3):  # type: ignore[operator] # schedules, now, last jobs
                jobs("schedules")


class TestRunSchedule:
    def test_it_makes_a_job_beside_the_slots(self) -> None:
        schedule = a_schedule()
        printed = jobs("run-schedule", "hourly")
        job = Job.objects.get()
        assert (job.schedule_id, job.slot) == (schedule.pk, None)
        assert printed == f"Made job {job.pk} of hourly.\n"

    def test_it_says_why_not(self) -> None:
        a_schedule()
        assert failing("run-schedule", "hourli")[1].endswith("there is no schedule 'hourli': did you mean 'hourly'?")
        Schedule.objects.update(task="gone")
        assert "no task is declared under the name 'gone'" in failing("run-schedule", "hourly")[1]
        assert not Job.objects.exists()


class TestPauseAndResume:
    def test_a_pause_may_end_by_itself(self) -> None:
        schedule = a_schedule()
        with at(on(2, 0, 30)):
            printed = jobs("pause-schedule", "hourly", "--for", "2h", "--reason", "moving house")
            assert printed == "Paused until 2026-03-02 02:30:00 UTC: hourly\n"
            assert "paused until 2026-03-02 02:30:00 UTC" in jobs("schedules")
        schedule.refresh_from_db()
        assert schedule.pause_reason == "moving house"
        assert tick(at=on(2, 2)) == []
        assert [job.slot for job in tick(at=on(2, 3))] == [on(2, 3)]
        assert slots_of(schedule)[on(2, 3)] == "job"

    def test_it_goes_on_from_now(self) -> None:
        a_schedule(name="one"), a_schedule(name="two")
        with at(on(2, 0, 30)):
            assert jobs("pause-schedule", "one", "one") == "Paused until resumed: one\n"
        with at(on(2, 5, 30)):
            assert jobs("resume-schedule", "one", "two") == "Goes on from now: one\nWas not paused: two\n"
        assert [job.slot for job in tick(at=on(2, 6)) if job.schedule_id == Schedule.objects.get(name="one").pk] == [
            on(2, 6)
        ]

    def test_one_unknown_name_changes_nothing(self) -> None:
        schedule = a_schedule()
        assert "there is no schedule 'x'" in failing("pause-schedule", "hourly", "x")[1]
        assert "has passed: nothing was paused" in failing("pause-schedule", "hourly", "--until", "2001-01-01")[1]
        schedule.refresh_from_db()
        assert schedule.paused_at is None
