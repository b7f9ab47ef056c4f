"""What people do with schedules: nothing past ever fires, and no slot goes without a reason."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_reliable_jobs.engine import backfill as engine_backfill
from django_reliable_jobs.engine import schedules
from django_reliable_jobs.exceptions import DuplicateJob, InvalidSchedule, UnknownSchedule, UnknownTask
from django_reliable_jobs.models import Job, Schedule, Slot, SlotRange
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.schedule_options import ScheduleOptions
from django_reliable_jobs.testing import at, tick
from tests import tasks
from tests.schedules import HOURLY, MONDAY, a_schedule, jobs_of, on, ranges_of, slots_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


class TestCreate:
    def test_auto_rules_are_resolved_and_kept_beside_what_was_written(self) -> None:
        schedule = a_schedule(Cron("30 2 * * *", timezone="Europe/Berlin"))
        assert schedule.recurrence["on_gap"] == schedule.recurrence["on_fold"] == "auto"
        assert (schedule.effective_gap, schedule.effective_fold) == ("after", "first")
        schedule.refresh_from_db()
        assert schedule.rule() == Cron("30 2 * * *", timezone="Europe/Berlin", on_gap="after", on_fold="first")

    def test_a_name_is_taken_once(self) -> None:
        a_schedule(name="nightly")
        with pytest.raises(InvalidSchedule, match="there is a schedule 'nightly' already") as caught:
            a_schedule(name="nightly")
        assert caught.value.field == "name"
        assert Schedule.objects.count() == 1

    def test_the_task_must_be_declared_and_take_the_arguments(self) -> None:
        with pytest.raises(InvalidSchedule, match=r"did you mean 'tests\.tasks\.effect'") as caught:
            a_schedule(task="tests.tasks.efect")
        assert caught.value.field == "task"
        with pytest.raises(InvalidSchedule, match="missing a required argument: 'name'") as caught:
            a_schedule(task="tests.tasks.effect")
        assert caught.value.field == "kwargs"
        assert not Schedule.objects.exists()

    def test_a_schedule_that_never_runs_has_no_next_run(self) -> None:
        assert a_schedule(Once(at=on(1))).next_run_at is None


class TestEdit:
    def test_a_new_rule_counts_from_now_and_fires_nothing_past(self) -> None:
        schedule = a_schedule(catch_up="all")
        with at(on(2, 5, 10)):
            edited = schedules.edit("default", schedule.pk, recurrence=Cron("*/30 * * * *"))
        assert edited.next_run_at == on(2, 5, 30)
        assert tick(at=on(2, 5, 29)) == []
        assert ranges_of(schedule) == [(on(2, 1), on(2, 5), 5, "edited")]
        assert [job.slot for job in tick(at=on(2, 5, 30))] == [on(2, 5, 30)]

    def test_an_edit_in_the_minute_of_a_slot_loses_no_later_one(self) -> None:
        schedule = a_schedule()
        with at(on(2, 0, 59, 59)):
            schedules.edit("default", schedule.pk, recurrence=Cron("0 * * * *", timezone="Europe/Berlin"))
        assert [job.slot for job in tick(at=on(2, 1))] == [on(2, 1)]

    def test_another_option_leaves_undecided_slots_to_be_decided(self) -> None:
        schedule = a_schedule()
        with at(on(2, 1, 30)):
            schedules.edit("default", schedule.pk, priority=9, kwargs={"x": 1}, overlap="allow")
        [job] = tick(at=on(2, 1, 30))
        assert (job.slot, job.priority, job.kwargs) == (on(2, 1), 9, {"x": 1})

    def test_the_same_rule_again_is_no_change(self) -> None:
        schedule = a_schedule()
        with at(on(2, 1, 30)):
            schedules.edit("default", schedule.pk, recurrence=HOURLY)
        assert len(tick(at=on(2, 1, 30))) == 1

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"kwargs": {"x": object()}}, "kwargs"),
            ({"overlap": "often"}, "overlap"),
            ({"jitter": timedelta(hours=2), "start_deadline": timedelta(hours=1)}, "jitter"),
            ({"ends_at": on(1), "starts_at": on(2)}, "ends_at"),
            ({"task": "gone"}, "task"),
            ({"name": ""}, "name"),
            ({"priority": 101}, "priority"),
            ({"queue_name": "a b"}, "queue_name"),
            ({"catch_up_limit": 0}, "catch_up_limit"),
            ({"start_deadline": timedelta(0)}, "start_deadline"),
            ({"keep_failed": -1}, "keep_failed"),
            ({"recurrence": "* * * * *"}, "recurrence"),
            ({"recurrence": {"kind": "cron", "expression": "61 * * * *"}}, "recurrence"),
        ],
    )
    def test_what_can_not_hold_is_refused_and_changes_nothing(self, changes: dict[str, object], field: str) -> None:
        schedule = a_schedule()
        before = Schedule.objects.values().get()
        with at(on(2, 5)), pytest.raises(InvalidSchedule) as caught:
            schedules.edit("default", schedule.pk, **changes)
        assert caught.value.field == field
        assert Schedule.objects.values().get() == before
        assert not SlotRange.objects.exists()

    def test_a_name_that_is_taken_is_refused(self) -> None:
        a_schedule(name="one")
        other = a_schedule(name="two")
        with pytest.raises(InvalidSchedule, match="already"):
            schedules.edit("default", other.pk, name="one")
        with pytest.raises(UnknownSchedule):
            schedules.edit("default", 12345, priority=1)

    def test_mending_a_broken_rule_records_what_can_not_be_known_any_more(self) -> None:
        schedule = a_schedule()
        Schedule.objects.filter(pk=schedule.pk).update(
            recurrence={"kind": "cron", "expression": "0 * * * *", "timezone": "X/Y"}
        )
        tick(at=on(2, 1))
        with at(on(2, 3, 30)):
            mended = schedules.edit("default", schedule.pk, recurrence=HOURLY)
        assert (mended.error, mended.next_run_at) == ("", on(2, 4))
        [(first, last, count, reason)] = ranges_of(schedule)
        assert (first > MONDAY, last, count, reason) == (True, on(2, 3, 30), None, "edited")


class TestPause:
    def test_a_pause_builds_no_backlog(self) -> None:
        schedule = a_schedule(catch_up="all")
        with at(on(2, 1, 30)):
            schedules.pause("default", [schedule.pk])
        assert Schedule.objects.get().next_run_at is None
        assert tick(at=on(2, 7)) == []
        with at(on(2, 7, 30)):
            assert schedules.resume("default", [schedule.pk]) == [schedule.pk]
        assert tick(at=on(2, 7, 30)) == []
        assert slots_of(schedule) == {on(2, 1): "paused"}
        assert ranges_of(schedule) == [(on(2, 2), on(2, 7), 6, "paused")]
        assert [job.slot for job in tick(at=on(2, 8))] == [on(2, 8)]

    def test_it_resumes_by_itself_and_what_was_missed_after_that_is_decided(self) -> None:
        schedule = a_schedule(catch_up="all", overlap="allow")
        with at(on(2, 1, 30)):
            schedules.pause("default", [schedule.pk], resume_at=on(2, 4, 30))
        assert Schedule.objects.get().next_run_at == on(2, 5)
        assert tick(at=on(2, 4, 59)) == []
        assert [job.slot for job in tick(at=on(2, 6))] == [on(2, 5), on(2, 6)]
        assert ranges_of(schedule) == [(on(2, 2), on(2, 4), 3, "paused")]
        schedule.refresh_from_db()
        assert (schedule.paused_at, schedule.resume_at) == (None, None)

    def test_resumed_by_hand_after_its_end_nothing_after_the_end_counts_as_paused(self) -> None:
        schedule = a_schedule(catch_up="all", overlap="allow")
        with at(MONDAY):
            schedules.pause("default", [schedule.pk], resume_at=on(2, 2, 30))
        with at(on(2, 4, 30)):
            schedules.resume("default", [schedule.pk])
        assert [job.slot for job in tick(at=on(2, 4, 30))] == [on(2, 3), on(2, 4)]

    def test_an_edit_of_a_paused_schedule_leaves_it_paused(self) -> None:
        schedule = a_schedule()
        with at(on(2, 1, 30)):
            schedules.pause("default", [schedule.pk], reason="moving house")
        with at(on(2, 3, 30)):
            edited = schedules.edit("default", schedule.pk, recurrence=Every(hours=2))
        assert (edited.next_run_at, edited.pause_reason) == (None, "moving house")
        assert ranges_of(schedule) == [(on(2, 2), on(2, 3), 2, "paused")]

    def test_history_outlives_a_pause(self) -> None:
        schedule = a_schedule()
        tick(at=on(2, 1))
        with at(on(2, 1, 30)):
            schedules.pause("default", [schedule.pk])
        assert slots_of(schedule) == {on(2, 1): "job"}

    def test_a_schedule_that_is_not_paused_is_not_resumed(self) -> None:
        schedule = a_schedule()
        with at(on(2, 1, 30)):
            assert schedules.resume("default", [schedule.pk]) == []
        assert len(tick(at=on(2, 1, 30))) == 1

    def test_a_broken_schedule_can_be_paused_and_resumed(self) -> None:
        schedule = a_schedule()
        Schedule.objects.update(recurrence={"kind": "sundial"})
        tick(at=on(2, 1))
        with at(on(2, 2)):
            schedules.pause("default", [schedule.pk])
        with at(on(2, 3)):
            schedules.resume("default", [schedule.pk])
        tick(at=on(2, 4))
        assert "sundial" in Schedule.objects.get().error


class TestRunNow:
    def test_it_is_a_job_of_the_schedule_without_a_slot(self) -> None:
        schedule = a_schedule(queue_name="mail", priority=3, start_deadline=60, jitter=30)
        with at(on(2, 0, 30)):
            schedules.pause("default", [schedule.pk])
            job = schedules.run_now("default", schedule.pk)
        assert (job.schedule_id, job.slot, job.start_before) == (schedule.pk, None, None)
        assert (job.queue_name, job.priority, job.status) == ("mail", 3, "READY")
        assert job.serial_key == f"schedule:{schedule.pk}"
        assert not Slot.objects.exists()

    def test_it_says_what_is_wrong(self) -> None:
        schedule = a_schedule(task="tests.tasks.unique", kwargs={"key": "a"})
        tasks.unique.enqueue("a")
        with pytest.raises(DuplicateJob):
            schedules.run_now("default", schedule.pk)
        Schedule.objects.update(task="gone")
        with pytest.raises(UnknownTask):
            schedules.run_now("default", schedule.pk)


class TestBackfill:
    def fill(self, schedule: Schedule, start: int, end: int, **options: bool) -> engine_backfill.Backfill:
        with at(on(2, 12)):
            return engine_backfill.backfill("default", schedule.pk, start=on(2, start), end=on(2, end), **options)

    def test_it_fills_slots_that_have_a_reason_and_those_before_there_was_a_schedule(self) -> None:
        schedule = a_schedule(since=on(2, 4), overlap="allow")
        tick(at=on(2, 7))
        tick(at=on(2, 9))
        assert slots_of(schedule) == {on(2, 7): "job", on(2, 8): "misfire", on(2, 9): "job"}
        assert ranges_of(schedule) == [(on(2, 5), on(2, 6), 2, "misfire")]
        done = self.fill(schedule, 3, 9)
        assert done.slots == [on(2, hour) for hour in (3, 4, 5, 6, 8)]
        assert done.had_job == [on(2, 7), on(2, 9)]
        assert set(slots_of(schedule).values()) == {"job"}
        assert sorted(slot for slot in jobs_of(schedule) if slot) == [on(2, hour) for hour in range(3, 10)]
        assert Job.objects.count() == 7
        assert {job.status for job in Job.objects.filter(pk__in=done.job_ids)} == {"READY"}

    def test_a_second_time_it_makes_nothing(self) -> None:
        schedule = a_schedule()
        assert len(self.fill(schedule, 3, 9).slots) == 7
        again = self.fill(schedule, 3, 9)
        assert (again.slots, len(again.had_job), again.job_ids) == ([], 7, [])
        assert Job.objects.count() == 7

    def test_a_tick_after_it_leaves_its_slots_alone(self) -> None:
        schedule = a_schedule(catch_up="all", overlap="allow")
        self.fill(schedule, 3, 9)
        assert [job.slot for job in tick(at=on(2, 12))] == [on(2, hour) for hour in (1, 2, 10, 11, 12)]
        assert Job.objects.count() == 12

    def test_a_dry_run_writes_nothing(self) -> None:
        schedule = a_schedule()
        assert self.fill(schedule, 3, 9, dry_run=True).slots == [on(2, hour) for hour in range(3, 10)]
        assert not Job.objects.exists() and not Slot.objects.exists()

    def test_its_jobs_run_in_turn_unless_overlap_is_allowed(self) -> None:
        self.fill(a_schedule(overlap="replace"), 3, 4)
        self.fill(a_schedule(overlap="allow", name="allow"), 3, 4)
        keys = [job.serial_key is not None for job in Job.objects.order_by("id")]
        assert keys == [True, True, False, False]
        assert not Job.objects.exclude(status="READY").exists(), "nothing is replaced"

    def test_it_refuses_the_future_what_is_below_the_horizon_and_too_much(self) -> None:
        schedule = a_schedule()
        with pytest.raises(InvalidSchedule, match="future"):
            self.fill(schedule, 3, 13)
        Schedule.objects.update(horizon=on(1, 0))
        with pytest.raises(InvalidSchedule, match="not on record"), at(on(2, 12)):
            engine_backfill.backfill("default", schedule.pk, start=on(1, 0), end=on(2, 3))
        minutely = a_schedule(Cron("* * * * *"), name="minutely")
        with pytest.raises(InvalidSchedule, match="more than 1000"), at(on(2, 23)):
            engine_backfill.backfill("default", minutely.pk, start=on(2, 0), end=on(2, 20))
        assert not Job.objects.exists()


def test_deleting_takes_the_record_of_slots_and_leaves_the_jobs() -> None:
    schedule, other = a_schedule(), a_schedule(name="other")
    tick(at=on(2, 5))
    schedules.delete("default", [schedule.pk])
    assert Schedule.objects.get() == other
    assert set(Slot.objects.values_list("schedule_id", flat=True)) == {other.pk}
    assert SlotRange.objects.get().schedule_id == other.pk
    assert Job.objects.count() == 2


def test_options_are_checked_whoever_makes_them() -> None:
    with pytest.raises(InvalidSchedule, match="aware datetime"):
        ScheduleOptions(recurrence=HOURLY, starts_at=on(2).replace(tzinfo=None))
    assert ScheduleOptions(recurrence=HOURLY, jitter=0).jitter is None  # type: ignore[arg-type]
    assert ScheduleOptions(recurrence=HOURLY, alert_after=60).alert_after == timedelta(minutes=1)  # type: ignore[arg-type]
