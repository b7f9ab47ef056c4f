"""Ticks that meet each other, and what others hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_reliable_jobs.engine import backfill, reconcile, schedules
from django_reliable_jobs.engine import tick as engine_tick
from django_reliable_jobs.models import CancelRequest, Job, Schedule
from django_reliable_jobs.recurrence import Cron
from django_reliable_jobs.testing import at, tick
from tests import tasks
from tests.actors import on_stage, wait_until_blocked
from tests.limited_claims import find_and_take
from tests.scheduled_tasks import only_declared
from tests.schedules import HOURLY, a_schedule, jobs_of, on, slots_of
from tests.states import a_worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_declared_schedules(transactional_db: None) -> None:
    Schedule.objects.all().delete()


def test_two_ticks_at_once_decide_a_slot_once() -> None:
    schedule = a_schedule(HOURLY)

    def tick_at_one() -> int:
        with at(on(2, 1)):
            return len(engine_tick.tick("default").jobs)

    with on_stage("winner", "loser") as (winner, loser):
        winner.begins()
        assert winner.does(tick_at_one) == 1
        assert loser.does(tick_at_one) == 0, "it passes over what the winner holds, and does not wait"
        winner.commits()
        assert loser.does(tick_at_one) == 0
    assert jobs_of(schedule) == {on(2, 1): "READY"}


def test_a_tick_that_rolls_back_leaves_its_slots_to_the_next() -> None:
    schedule = a_schedule(HOURLY)

    def tick_at_one() -> int:
        with at(on(2, 1)):
            return len(engine_tick.tick("default").jobs)

    with on_stage("dying", "next") as (dying, following):
        dying.begins()
        assert dying.does(tick_at_one) == 1
        dying.rolls_back()
        assert following.does(tick_at_one) == 1
    assert slots_of(schedule) == {on(2, 1): "job"}
    assert Job.objects.count() == 1


def test_a_caller_that_holds_a_unique_key_holds_up_one_schedule_only() -> None:
    held_up = a_schedule(task="tests.tasks.unique", kwargs={"key": "a"}, name="a")
    other = a_schedule(name="b")

    def tick_at_one() -> list[str]:
        with at(on(2, 1)):
            return engine_tick.tick("default").broken

    with on_stage("caller", "scheduler") as (caller, scheduler):
        caller.begins()
        caller.does(tasks.unique.enqueue, "a")
        assert scheduler.does(tick_at_one) == ["a"]
        caller.rolls_back()
    assert jobs_of(other) == {on(2, 1): "READY"}
    held_up.refresh_from_db()
    assert "lock timeout" in held_up.error
    assert [job.schedule_id for job in tick(at=on(2, 1, 0, 5))] == [held_up.pk]


@pytest.mark.parametrize(
    ("night", "slots"),
    [
        (datetime(2026, 3, 29, tzinfo=UTC), 120),  # 02:00 becomes 03:00 at 01:00 UTC
        (datetime(2026, 10, 25, tzinfo=UTC), 120),  # 03:00 becomes 02:00 at 01:00 UTC
    ],
)
def test_five_schedulers_one_of_them_ahead_decide_each_minute_once_through_a_clock_change(
    night: datetime, slots: int
) -> None:
    schedule = a_schedule(
        Cron("* * * * *", timezone="Europe/Berlin"), since=night, overlap="allow", catch_up="all", catch_up_limit=1000
    )
    daily = a_schedule(Cron("30 2 * * *", timezone="Europe/Berlin"), name="daily", since=night, overlap="allow")

    def tick_through(ahead: int, pace: int) -> None:
        for seconds in range(0, 7200 + pace, pace):
            with at(min(night + timedelta(seconds=seconds + ahead), night + timedelta(hours=2))):
                engine_tick.tick("default")

    with on_stage("a", "b", "c", "d", "ahead") as actors:
        running = [
            actor.starts(tick_through, 120 if actor.name == "ahead" else 0, pace)
            for actor, pace in zip(actors, (20, 30, 45, 60, 30), strict=True)
        ]
        for each in running:
            each.result(timeout=60)
    tick(at=night + timedelta(hours=2))
    made = list(Job.objects.filter(schedule_id=schedule.pk).order_by("slot").values_list("slot", flat=True))
    assert made == [night + timedelta(minutes=number) for number in range(1, slots + 1)]
    assert slots_of(schedule) == dict.fromkeys(made, "job")
    assert len(jobs_of(daily)) == 1, "a daily job runs once in both nights"


def test_an_edit_waits_for_the_tick_and_goes_by_what_it_decided() -> None:
    schedule = a_schedule(catch_up="all")

    def tick_at_two() -> int:
        with at(on(2, 2)):
            return len(engine_tick.tick("default").jobs)

    def edit_at_two() -> None:
        with at(on(2, 2)):
            schedules.edit("default", schedule.pk, recurrence=Cron("30 * * * *"))

    with on_stage("scheduler", "operator") as (scheduler, operator):
        scheduler.begins()
        assert scheduler.does(tick_at_two) == 2
        edit = operator.starts(edit_at_two)
        wait_until_blocked(operator)
        scheduler.commits()
        edit.result(timeout=60)
    assert slots_of(schedule) == {on(2, 1): "job", on(2, 2): "job"}
    schedule.refresh_from_db()
    assert schedule.next_run_at == on(2, 2, 30)


def test_a_tick_passes_over_a_schedule_that_is_being_edited() -> None:
    schedule = a_schedule()
    other = a_schedule(name="other")

    def edit() -> None:
        with at(on(2, 0, 30)):
            schedules.pause("default", [schedule.pk])

    with on_stage("operator") as [operator]:
        operator.begins()
        operator.does(edit)
        assert [job.schedule_id for job in tick(at=on(2, 1))] == [other.pk]
        operator.commits()
    assert tick(at=on(2, 1)) == []
    assert slots_of(schedule) == {}


def test_a_deletion_waits_for_the_tick_and_takes_its_slots_along() -> None:
    schedule = a_schedule(catch_up="all")

    def tick_at_two() -> int:
        with at(on(2, 2)):
            return len(engine_tick.tick("default").jobs)

    with on_stage("scheduler", "operator") as (scheduler, operator):
        scheduler.begins()
        assert scheduler.does(tick_at_two) == 2
        deletion = operator.starts(schedules.delete, "default", [schedule.pk])
        wait_until_blocked(operator)
        scheduler.commits()
        deletion.result(timeout=60)
    assert not Schedule.objects.exists()
    assert slots_of(schedule) == {}
    assert Job.objects.filter(schedule_id=schedule.pk).count() == 2


def test_two_backfills_at_once_make_each_job_once() -> None:
    schedule = a_schedule()

    def fill() -> int:
        with at(on(2, 12)):
            return len(backfill.backfill("default", schedule.pk, start=on(2, 1), end=on(2, 9)).job_ids)

    with on_stage("winner", "loser") as (winner, loser):
        winner.begins()
        assert winner.does(fill) == 9
        waiting = loser.starts(fill)
        wait_until_blocked(loser)
        winner.commits()
        assert waiting.result(timeout=60) == 0
    assert Job.objects.count() == 9


def test_two_processes_that_start_at_once_make_a_declared_schedule_once() -> None:
    def sync() -> list[str]:
        return [change.action for change in reconcile.sync("default")]

    with only_declared(("nightly", HOURLY, {})), on_stage("first", "second") as (first, second):
        first.begins()
        assert first.does(sync) == ["created"]
        waiting = second.starts(sync)
        wait_until_blocked(second)
        first.commits()
        assert waiting.result(timeout=60) == ["unchanged"]
    assert Schedule.objects.get().name == "nightly"


def tick_at_two() -> list[int]:
    with at(on(2, 2)):
        return engine_tick.tick("default").jobs


def claim_at_two(worker_id: int) -> list[int]:
    with at(on(2, 2)):
        return [job.id for job in find_and_take(worker_id)]


def a_unique_job_to_be_replaced() -> tuple[Schedule, int]:
    schedule = a_schedule(task="tests.tasks.unique", kwargs={"key": "a"}, overlap="replace")
    [job] = tick(at=on(2, 1))
    return schedule, job.pk


def test_a_worker_that_claims_before_the_tick_keeps_the_only_job_of_a_unique_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_tick, "LOCK_SECONDS", 19.0)
    schedule, job_id = a_unique_job_to_be_replaced()
    worker_id = a_worker()
    with on_stage("worker", "scheduler") as (worker, scheduler):
        worker.begins()
        assert worker.does(claim_at_two, worker_id) == [job_id]
        ticking = scheduler.starts(tick_at_two)
        wait_until_blocked(scheduler)
        worker.commits()
        assert ticking.result(timeout=60) == [], "the scheduler loses"
    assert jobs_of(schedule) == {on(2, 1): "RUNNING"}
    assert slots_of(schedule) == {on(2, 1): "job", on(2, 2): "duplicate"}
    assert not CancelRequest.objects.exists()


def test_a_tick_before_the_claim_replaces_the_job_of_a_unique_key_and_the_worker_gets_the_new_one() -> None:
    schedule, _ = a_unique_job_to_be_replaced()
    worker_id = a_worker()
    with on_stage("scheduler", "worker") as (scheduler, worker):
        scheduler.begins()
        [new] = scheduler.does(tick_at_two)
        assert worker.does(claim_at_two, worker_id) == [], "the worker passes over what is being replaced"
        scheduler.commits()
        assert worker.does(claim_at_two, worker_id) == [new]
    assert jobs_of(schedule) == {on(2, 1): "CANCELLED", on(2, 2): "RUNNING"}
