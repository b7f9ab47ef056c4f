"""A schedule that can't be decided stops no other, says why, and recovers when it is mended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from django_reliable_jobs import registry
from django_reliable_jobs.engine import scheduled_jobs
from django_reliable_jobs.engine import tick as engine_tick
from django_reliable_jobs.models import Job, Schedule, Slot
from django_reliable_jobs.testing import at, tick
from tests.schedules import MONDAY, a_schedule, on, ranges_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


class TestBrokenSchedules:
    def breaking(self, how: str) -> tuple[Schedule, dict[str, object]]:
        """Break a schedule behind our back; return it and what mends it."""
        schedule = a_schedule(name=how, task="tests.tasks.effect", kwargs={"name": "x"})
        before = Schedule.objects.filter(pk=schedule.pk).values("task", "kwargs", "recurrence").get()
        broken: dict[str, object] = {
            "task gone": {"task": "tests.tasks.gone"},
            "zone gone": {"recurrence": {**before["recurrence"], "timezone": "Mars/Olympus"}},
            "arguments no longer fit": {"kwargs": {"name": "x", "colour": "red"}},
            "no recurrence at all": {"recurrence": {"kind": "sundial"}},
        }[how]
        Schedule.objects.filter(pk=schedule.pk).update(**broken)  # type: ignore[arg-type]
        return schedule, before

    @pytest.mark.parametrize("how", ["task gone", "zone gone", "arguments no longer fit", "no recurrence at all"])
    def test_a_broken_schedule_stops_no_other_is_shown_and_recovers_when_mended(self, how: str) -> None:
        schedule, before = self.breaking(how)
        other = a_schedule(name="zzz", overlap="allow")
        [job] = tick(at=on(2, 1))
        assert job.schedule_id == other.pk
        schedule.refresh_from_db()
        assert schedule.error
        assert (schedule.error_at, schedule.retry_at) == (on(2, 1), on(2, 1, 1))
        assert (schedule.decided_until, schedule.next_run_at) == (MONDAY, on(2, 1))
        assert [job.schedule_id for job in tick(at=on(2, 2))] == [other.pk]
        Schedule.objects.filter(pk=schedule.pk).update(**before)
        made = {job.schedule_id: job.slot for job in tick(at=on(2, 3))}
        assert made == {schedule.pk: on(2, 3), other.pk: on(2, 3)}
        schedule.refresh_from_db()
        assert (schedule.error, schedule.error_at, schedule.retry_at) == ("", None, None)
        assert ranges_of(schedule) == [(on(2, 1), on(2, 2), 2, "misfire")]

    def test_an_exception_nobody_foresaw_stops_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        a_schedule(name="bad", kwargs={"bad": 1})
        good = a_schedule(name="good")
        insert = scheduled_jobs.insert

        def explode(using: str, jobs: Sequence[Mapping[str, Any]]) -> set[int]:
            made = insert(using, jobs)
            if any("bad" in job["kwargs"] for job in jobs):
                raise ZeroDivisionError("nobody foresaw")
            return made

        monkeypatch.setattr(scheduled_jobs, "insert", explode)
        assert [job.schedule_id for job in tick(at=on(2, 1))] == [good.pk]
        assert Schedule.objects.get(name="bad").error == "ZeroDivisionError: nobody foresaw"
        assert Slot.objects.count() == Job.objects.count() == 1, "nothing half done stays"

    def test_a_broken_one_is_not_tried_at_every_tick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schedule, _ = self.breaking("task gone")
        tick(at=on(2, 1))
        with at(on(2, 1, 0, 59)):
            assert engine_tick.tick("default").due == 0
            assert engine_tick.seconds_until_due("default") is None
        with at(on(2, 1, 1)):
            assert engine_tick.tick("default").due == 1
        assert Schedule.objects.get().error_at == on(2, 1), "broken since the first time"
        assert registry.find(schedule.task) is not None
