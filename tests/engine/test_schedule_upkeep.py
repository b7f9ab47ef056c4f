"""Old slots go and leave a horizon; ended jobs beyond what is kept go; rows changed outside are noticed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import override_settings

from django_reliable_jobs.engine import schedule_upkeep
from django_reliable_jobs.models import Job, Schedule, Slot, SlotRange
from django_reliable_jobs.recurrence import Cron, Every
from django_reliable_jobs.testing import at, tick
from tests.schedules import a_schedule, on, slots_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


class TestPruneSlots:
    @pytest.fixture(autouse=True)
    def kept_for_a_day(self) -> Iterator[None]:
        with override_settings(RELIABLE_JOBS={"SLOT_RETENTION": timedelta(days=1)}):
            yield

    def test_old_slots_go_and_the_horizon_says_so(self) -> None:
        schedule = a_schedule(overlap="allow", catch_up="all")
        tick(at=on(2, 5))
        tick(at=on(4, 5))
        with at(on(4, 5)):
            assert schedule_upkeep.prune_slots("default") == schedule.pk
            assert schedule_upkeep.prune_slots("default", schedule.pk) is None
        assert min(slots_of(schedule)) == on(3, 6)
        schedule.refresh_from_db()
        assert schedule.horizon == on(3, 5)
        assert Job.objects.filter(slot__lte=on(3, 5)).exists(), "jobs have their own retention"

    def test_no_slot_below_the_horizon_is_decided_again(self) -> None:
        schedule = a_schedule(overlap="allow", catch_up="all")
        tick(at=on(4, 5))
        with at(on(6)):
            schedule_upkeep.prune_slots("default")
        made = Job.objects.count()
        for moment in (on(2, 5), on(4, 5)):
            assert tick(at=moment) == []
        assert Job.objects.count() == made
        schedule.refresh_from_db()
        assert schedule.horizon == schedule.decided_until == on(4, 5), "what was not decided is kept open"

    def test_a_range_goes_when_all_of_it_is_old(self) -> None:
        schedule = a_schedule()
        tick(at=on(2, 5))  # misfires 1 to 4
        tick(at=on(3, 12))  # misfires 6 to 35
        with at(on(4)):
            schedule_upkeep.prune_slots("default")
        assert SlotRange.objects.get().last == on(3, 11)
        schedule.refresh_from_db()
        assert schedule.horizon == on(3)

    def test_it_goes_batch_by_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule_upkeep, "MOST_SLOTS", 10)
        schedule = a_schedule(Every(minutes=1), overlap="allow", catch_up="all")
        tick(at=on(2, 1))
        with at(on(9)):
            schedule_upkeep.prune_slots("default")
            assert (Slot.objects.count(), min(slots_of(schedule))) == (50, on(2, 0, 11))
            schedule.refresh_from_db()
            assert schedule.horizon == on(2, 0, 10)

    def test_nothing_goes_while_it_is_young_or_kept_for_ever(self) -> None:
        schedule = a_schedule()
        tick(at=on(2, 1))
        with at(on(2, 23)):
            schedule_upkeep.prune_slots("default")
        with at(on(20)), override_settings(RELIABLE_JOBS={"SLOT_RETENTION": None}):
            assert schedule_upkeep.prune_slots("default") is None
        assert len(slots_of(schedule)) == 1
        assert Schedule.objects.get().horizon is None


def test_only_so_many_ended_jobs_of_a_schedule_are_kept() -> None:
    keeps = a_schedule(Every(minutes=1), overlap="allow", catch_up="all", keep_succeeded=2, keep_failed=1)
    other = a_schedule(Every(minutes=1), overlap="allow", catch_up="all", name="other")
    tick(at=on(2, 0, 8))
    for job in Job.objects.all():
        assert job.slot is not None
        status = ["SUCCEEDED", "DEAD", "CANCELLED", "READY"][job.slot.minute % 4]
        Job.objects.filter(pk=job.pk).update(status=status, finished_at=job.slot if status != "READY" else None)
    assert schedule_upkeep.prune_jobs("default") == keeps.pk
    left = sorted(Job.objects.filter(schedule_id=keeps.pk).values_list("slot__minute", flat=True))
    assert left == [2, 3, 4, 5, 6, 7, 8], "1 was the older of the two dead"
    assert Job.objects.filter(schedule_id=other.pk).count() == 8
    Schedule.objects.filter(pk=keeps.pk).update(keep_succeeded=0)
    schedule_upkeep.prune_jobs("default")
    assert not Job.objects.filter(schedule_id=keeps.pk, status="SUCCEEDED").exists()


class TestReplan:
    def test_a_rule_changed_in_sql_is_followed(self, caplog: pytest.LogCaptureFixture) -> None:
        schedule, other = a_schedule(), a_schedule(name="other")
        Schedule.objects.filter(pk=schedule.pk).update(recurrence=Cron("15 * * * *").as_dict())
        with at(on(2, 0, 1)):
            schedule_upkeep.replan("default")
        schedule.refresh_from_db()
        assert schedule.next_run_at == on(2, 0, 15)
        assert "schedule hourly runs next at" in caplog.text
        before = Schedule.objects.values().get(pk=other.pk)
        assert before["next_run_at"] == on(2, 1)

    def test_a_schedule_decided_under_a_clock_that_was_ahead_goes_on_when_its_cursor_is_set_back(self) -> None:
        schedule = a_schedule(overlap="allow")
        tick(at=on(2, 1))
        tick(at=on(30, 1))  # the clock was wrong
        assert tick(at=on(2, 2)) == []
        with at(on(2, 2)):
            Schedule.objects.filter(decided_until__gt=on(2, 2)).update(decided_until=on(2, 2), next_run_at=None)
            schedule_upkeep.replan("default")
        assert [job.slot for job in tick(at=on(2, 3))] == [on(2, 3)]
        assert tick(at=on(30, 1)) == [], "that slot had its job"
        assert Slot.objects.filter(schedule_id=schedule.pk, outcome="job").count() == Job.objects.count()

    def test_a_broken_one_stops_no_other(self) -> None:
        broken = a_schedule(name="broken")
        Schedule.objects.filter(pk=broken.pk).update(recurrence={"kind": "sundial"})
        schedule = a_schedule()
        Schedule.objects.filter(pk=schedule.pk).update(recurrence=Every(minutes=1).as_dict(), effective_gap="")
        with at(on(2, 0, 1)):
            schedule_upkeep.replan("default")
        schedule.refresh_from_db()
        assert schedule.next_run_at == on(2, 0, 1)

    def test_a_paused_one_stays_without_a_next_run(self) -> None:
        schedule = a_schedule()
        Schedule.objects.update(paused_at=on(2), next_run_at=None)
        schedule_upkeep.replan("default")
        schedule.refresh_from_db()
        assert schedule.next_run_at is None


class TestMoved:
    def test_runs_that_are_not_those_that_were_planned_are_found(self) -> None:
        a_schedule(name="stays")
        schedule = a_schedule(Cron("30 2 * * *", timezone="Europe/Berlin"), name="moves")
        assert schedule_upkeep.find_moved("default") == []
        # As if the zone had had another offset when it was planned.
        planned = [(on(day, 0, 30)).isoformat() for day in (2, 3, 4)]
        Schedule.objects.filter(pk=schedule.pk).update(planned=planned)
        [moved] = schedule_upkeep.find_moved("default")
        assert moved.name == "moves"
        assert moved.planned == [on(2, 0, 30), on(3, 0, 30), on(4, 0, 30)]
        assert moved.now == [on(2, 1, 30), on(3, 1, 30), on(4, 1, 30)]
        tick(at=on(2, 1, 30))
        assert schedule_upkeep.find_moved("default") == [], "the next decision plans anew"
