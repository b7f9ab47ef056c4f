"""The tick: one job per slot, or a recorded reason."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F

from django_reliable_jobs.engine import schedules
from django_reliable_jobs.engine import tick as engine_tick
from django_reliable_jobs.models import CancelRequest, Job, Schedule, Slot, SlotRange
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.testing import at, tick
from tests import tasks
from tests.schedules import MONDAY, a_schedule, jobs_of, on, ranges_of, slots_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


class TestDueSlots:
    def test_a_due_slot_makes_one_job_that_knows_it(self) -> None:
        schedule = a_schedule(task="tests.tasks.effect", kwargs={"name": "x"}, queue_name="mail", priority=7)
        [job] = tick(at=on(2, 1))
        assert (job.task, job.kwargs, job.schedule_id, job.slot) == (
            "tests.tasks.effect",
            {"name": "x"},
            schedule.pk,
            on(2, 1),
        )
        assert (job.queue_name, job.priority, job.status, job.run_after) == ("mail", 7, "READY", on(2, 1))
        assert slots_of(schedule) == {on(2, 1): "job"}
        assert Slot.objects.get().job_id == job.pk
        schedule.refresh_from_db()
        assert (schedule.decided_until, schedule.next_run_at) == (on(2, 1), on(2, 2))

    def test_nothing_is_made_before_it_is_due_or_twice(self) -> None:
        schedule = a_schedule(overlap="allow")
        assert tick(at=on(2, 0, 59, 59)) == []
        assert len(tick(at=on(2, 1))) == 1
        assert tick(at=on(2, 1)) == []
        assert tick(at=on(2, 1, 59)) == []
        assert slots_of(schedule) == {on(2, 1): "job"}

    def test_the_slot_of_the_moment_of_creation_does_not_fire(self) -> None:
        schedule = a_schedule(since=on(2, 1))
        assert tick(at=on(2, 1)) == []
        assert schedule.next_run_at == on(2, 2)

    def test_next_run_is_a_slot_and_never_the_moment_of_the_tick(self) -> None:
        schedule = a_schedule(Every(minutes=7, anchor=MONDAY), overlap="allow")
        tick(at=on(2, 0, 33, 12))
        schedule.refresh_from_db()
        assert (schedule.decided_until, schedule.next_run_at) == (on(2, 0, 28), on(2, 0, 35))

    def test_a_clock_that_jumps_back_makes_nothing_and_moves_nothing_back(self) -> None:
        schedule = a_schedule(overlap="allow")
        tick(at=on(2, 5))
        before = Schedule.objects.values().get()
        for moment in (on(2, 3), on(2, 0), on(1, 0), datetime(2020, 1, 1, tzinfo=MONDAY.tzinfo)):
            assert tick(at=moment) == []
        assert Schedule.objects.values().get() == before
        assert len(tick(at=on(2, 6))) == 1
        assert Job.objects.filter(schedule_id=schedule.pk).count() == 2

    def test_once_fires_once_and_holds_up_no_other(self) -> None:
        once = a_schedule(Once(at=on(2, 0, 30)), name="once")
        other = a_schedule(name="other")
        assert len(tick(at=on(2, 1))) == 2
        once.refresh_from_db()
        assert (once.next_run_at, once.decided_until) == (None, on(2, 0, 30))
        Job.objects.update(status="SUCCEEDED", finished_at=on(2, 1))
        assert [job.schedule_id for job in tick(at=on(2, 2))] == [other.pk]

    def test_a_schedule_ends_after_its_end(self) -> None:
        schedule = a_schedule(starts_at=on(2, 2), ends_at=on(2, 3), overlap="allow", catch_up="all")
        assert [job.slot for job in tick(at=on(2, 9))] == [on(2, 2), on(2, 3)]
        schedule.refresh_from_db()
        assert schedule.next_run_at is None

    def test_fifty_are_decided_in_one_transaction_and_the_rest_in_the_next(self) -> None:
        for number in range(120):
            a_schedule(name=f"s{number}")
        with at(on(2, 1)):
            done = engine_tick.tick("default")
            assert (done.due, len(done.jobs)) == (50, 50)
        assert len(tick(at=on(2, 1))) == 70

    def test_a_far_future_is_not_walked(self) -> None:
        a_schedule(Once(at=datetime(2900, 1, 1, tzinfo=MONDAY.tzinfo)), name="far")
        a_schedule(Cron("0 0 29 2 *"), name="leap")
        with at(MONDAY):
            assert engine_tick.tick("default").due == 0
            assert (
                engine_tick.seconds_until_due("default")
                == (on(1) - MONDAY).total_seconds() + 86400 * (datetime(2028, 2, 29) - datetime(2026, 3, 1)).days
            )

    def test_the_seconds_until_the_next_slot(self) -> None:
        assert engine_tick.seconds_until_due("default") is None
        a_schedule()
        with at(on(2, 0, 59)):
            assert engine_tick.seconds_until_due("default") == 60

    def test_jitter_makes_the_job_later_and_leaves_the_slot(self) -> None:
        schedule = a_schedule(jitter=timedelta(minutes=10), start_deadline=timedelta(minutes=30))
        [job] = tick(at=on(2, 1))
        assert job.slot == on(2, 1)
        assert on(2, 1) < job.run_after <= on(2, 1, 10)
        assert (job.status, job.start_before) == ("SCHEDULED", on(2, 1, 30))
        assert slots_of(schedule) == {on(2, 1): "job"}

    def test_both_passes_of_a_repeated_hour_are_two_slots(self) -> None:
        night = datetime(2026, 10, 25, tzinfo=MONDAY.tzinfo)
        schedule = a_schedule(
            Cron("30 * * * *", timezone="Europe/Berlin"), since=night, overlap="allow", catch_up="all"
        )
        assert [job.slot for job in tick(at=night + timedelta(hours=2))] == [
            night + timedelta(minutes=30),
            night + timedelta(minutes=90),
        ]
        assert len(slots_of(schedule)) == 2


class TestMissedSlots:
    def test_the_newest_is_made_and_the_others_are_one_range(self) -> None:
        schedule = a_schedule()
        [job] = tick(at=on(5, 12, 0, 20))
        assert job.slot == on(5, 12)
        assert slots_of(schedule) == {on(5, 12): "job"}
        assert ranges_of(schedule) == [(on(2, 1), on(5, 11), 83, "misfire")]

    def test_a_range_of_one_is_a_row_of_its_own(self) -> None:
        schedule = a_schedule()
        tick(at=on(2, 2))
        assert slots_of(schedule) == {on(2, 1): "misfire", on(2, 2): "job"}
        assert ranges_of(schedule) == []

    def test_more_than_a_hundred_missed_slots_never_stop_a_schedule(self) -> None:
        schedule = a_schedule(Cron("* * * * *"), catch_up="all", overlap="allow")
        jobs = tick(at=on(4))  # 2880 slots
        assert [job.slot for job in jobs] == [on(4) - timedelta(minutes=number) for number in range(99, -1, -1)]
        assert ranges_of(schedule) == [(on(2, 0, 1), on(3, 22, 20), 2780, "limit")]
        assert len(tick(at=on(4, 0, 1))) == 1

    def test_ten_thousand_missed_slots_are_decided_in_under_a_second_without_a_row_each(self) -> None:
        schedule = a_schedule(Cron("* * * * *"))
        before = time.thread_time()  # of the processor: others may use the machine meanwhile
        [job] = tick(at=MONDAY + timedelta(minutes=10_001))
        assert time.thread_time() - before < 1
        assert ranges_of(schedule)[0][2] == 10_000
        assert (Slot.objects.count(), SlotRange.objects.count()) == (1, 1)
        assert job.slot == MONDAY + timedelta(minutes=10_001)

    def test_a_tick_holds_no_rows_for_long_and_leaves_the_others_to_the_next(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine_tick, "DECIDE_SECONDS", 0)
        rows = [a_schedule(name=name) for name in ("a", "b", "c")]
        decided = []
        with at(on(2, 1)):
            for _ in range(4):
                decided.append(engine_tick.tick("default").due)
        assert decided == [1, 1, 1, 0]
        assert [slots_of(each) for each in rows] == [{on(2, 1): "job"}] * 3

    def test_the_start_deadline_goes_with_the_job(self) -> None:
        a_schedule(start_deadline=timedelta(minutes=5))
        [job] = tick(at=on(2, 1, 4))
        assert job.start_before == on(2, 1, 5)

    def test_a_slot_decided_after_its_deadline_is_missed(self) -> None:
        schedule = a_schedule(start_deadline=timedelta(minutes=5))
        assert tick(at=on(2, 1, 5, 1)) == []
        assert slots_of(schedule) == {on(2, 1): "deadline"}
        assert Slot.objects.get().outcome == "missed"

    def test_caught_up_jobs_of_a_schedule_without_overlap_run_in_turn(self) -> None:
        for overlap, expected in (("allow", None), ("skip", "schedule:{}"), ("queue", "schedule:{}")):
            schedule = a_schedule(name=overlap, overlap=overlap, catch_up="all")
            keys = {job.serial_key for job in tick(at=on(2, 5))}
            assert keys == {expected.format(schedule.pk) if expected else None}
            Job.objects.all().delete()
            Schedule.objects.all().delete()


class TestOverlap:
    def test_allow_makes_jobs_side_by_side(self) -> None:
        schedule = a_schedule(overlap="allow")
        tick(at=on(2, 1))
        tick(at=on(2, 2))
        assert jobs_of(schedule) == {on(2, 1): "READY", on(2, 2): "READY"}

    @pytest.mark.parametrize("status", ["SCHEDULED", "READY", "RUNNING", "WAITING"])
    def test_skip_leaves_out_the_new_one_while_one_lives(self, status: str) -> None:
        schedule = a_schedule(overlap="skip")
        [job] = tick(at=on(2, 1))
        Job.objects.filter(pk=job.pk).update(
            status=status, token=1, worker_id=1, started_at=on(2, 1), first_started_at=on(2, 1)
        )
        assert tick(at=on(2, 2)) == []
        assert slots_of(schedule) == {on(2, 1): "job", on(2, 2): "overlap"}

    @pytest.mark.parametrize("status", ["SUCCEEDED", "DEAD", "CANCELLED"])
    def test_skip_goes_on_after_the_end(self, status: str) -> None:
        schedule = a_schedule(overlap="skip")
        [job] = tick(at=on(2, 1))
        Job.objects.filter(pk=job.pk).update(status=status, finished_at=on(2, 1))
        assert [job.slot for job in tick(at=on(2, 2))] == [on(2, 2)]
        assert slots_of(schedule) == {on(2, 1): "job", on(2, 2): "job"}

    def test_queue_lets_one_wait_and_leaves_out_the_next(self) -> None:
        schedule = a_schedule(overlap="queue")
        [running] = tick(at=on(2, 1))
        Job.objects.filter(pk=running.pk).update(
            status="RUNNING", token=1, worker_id=1, started_at=on(2, 1), first_started_at=on(2, 1)
        )
        assert len(tick(at=on(2, 2))) == 1
        assert tick(at=on(2, 3)) == []
        assert slots_of(schedule) == {on(2, 1): "job", on(2, 2): "job", on(2, 3): "overlap"}
        assert set(Job.objects.values_list("serial_key", flat=True)) == {f"schedule:{schedule.pk}"}

    def test_queue_counts_a_retry_as_the_one_that_began(self) -> None:
        a_schedule(overlap="queue")
        [retrying] = tick(at=on(2, 1))
        Job.objects.filter(pk=retrying.pk).update(status="SCHEDULED", first_started_at=on(2, 1))
        assert len(tick(at=on(2, 2))) == 1

    def test_replace_cancels_what_waits_and_asks_what_runs(self) -> None:
        schedule = a_schedule(overlap="replace")
        [first] = tick(at=on(2, 1))
        [second] = tick(at=on(2, 2))
        first.refresh_from_db()
        assert first.status == "CANCELLED"
        assert "2026-03-02T02:00:00" in (first.reason or "")
        Job.objects.filter(pk=second.pk).update(
            status="RUNNING", token=1, worker_id=1, started_at=on(2, 2), first_started_at=on(2, 2)
        )
        [third] = tick(at=on(2, 3))
        assert CancelRequest.objects.get().job_id == second.pk
        assert (third.status, third.serial_key) == ("READY", f"schedule:{schedule.pk}")
        assert set(slots_of(schedule).values()) == {"job"}

    def test_a_job_that_a_person_asked_for_counts(self) -> None:
        schedule = a_schedule(overlap="skip")
        with at(on(2, 0, 50)):
            schedules.run_now("default", schedule.pk)
        assert tick(at=on(2, 1)) == []
        assert slots_of(schedule) == {on(2, 1): "overlap"}

    def test_a_live_duplicate_of_a_unique_task_is_a_reason(self) -> None:
        tasks.unique.enqueue("a")
        schedule = a_schedule(task="tests.tasks.unique", kwargs={"key": "a"})
        other = a_schedule(task="tests.tasks.unique", kwargs={"key": "b"}, name="other")
        [job] = tick(at=on(2, 1))
        assert job.schedule_id == other.pk
        assert slots_of(schedule) == {on(2, 1): "duplicate"}


class TestConstraints:
    def test_a_slot_can_have_one_job_only(self) -> None:
        schedule = a_schedule()
        tick(at=on(2, 1))
        with pytest.raises(IntegrityError), transaction.atomic():
            Slot.objects.create(schedule_id=schedule.pk, slot=on(2, 1), outcome="job", job_id=7)

    @pytest.mark.parametrize(
        "row", [{"outcome": "job"}, {"outcome": "missed"}, {"outcome": "skipped", "reason": "overlap", "job_id": 1}]
    )
    def test_a_slot_has_a_job_or_a_reason(self, row: dict[str, object]) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            Slot.objects.create(schedule_id=1, slot=on(2, 1), **row)

    def test_the_cursor_lies_before_the_next_run(self) -> None:
        a_schedule()
        with pytest.raises(IntegrityError), transaction.atomic():
            Schedule.objects.update(decided_until=F("next_run_at"))


def test_a_slot_that_has_a_row_is_done() -> None:
    """Whoever decided it: a tick advances and makes no job."""
    schedule = a_schedule()
    Slot.objects.create(schedule_id=schedule.pk, slot=on(2, 1), outcome="job", job_id=7)
    assert tick(at=on(2, 1)) == []
    schedule.refresh_from_db()
    assert schedule.next_run_at == on(2, 2)
    assert not Job.objects.exists()
