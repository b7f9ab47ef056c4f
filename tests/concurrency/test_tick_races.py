"""Ticks that meet each other, and what others hold."""

from __future__ import annotations

import pytest

from django_reliable_jobs.engine import tick as engine_tick
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.testing import at, tick
from tests import tasks
from tests.actors import on_stage
from tests.schedules import HOURLY, a_schedule, jobs_of, on, slots_of

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
