"""A scheduler of which a part died or hangs does not look alive."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, ProgrammingError

from django_reliable_jobs import registry
from django_reliable_jobs.engine import reconcile, schedules, tick
from django_reliable_jobs.models import Leader, Schedule, Slot
from django_reliable_jobs.processes import scheduler as scheduler_module
from django_reliable_jobs.processes import upkeep
from django_reliable_jobs.processes.scheduler import Scheduler
from django_reliable_jobs.processes.upkeep import Watchdog
from django_reliable_jobs.recurrence import Every
from django_reliable_jobs.schedule_options import ScheduleOptions
from tests.actors import on_stage, wait_for
from tests.scheduled_tasks import only_declared
from tests.workers import WorkerProcess

DECLARED = "nightly-invoices"  # by the project of the tests


def watching(scheduler: Any, stuck: list[str]) -> Watchdog:
    return Watchdog(scheduler, on_stuck=lambda: stuck.append("stuck"), on_death=lambda name, error: None)


def test_a_scheduler_that_does_not_turn_is_noticed_after_three_minutes() -> None:
    scheduler, stuck = SimpleNamespace(turns=7, identity="host:1"), []  # type: ignore[var-annotated]
    watchdog = watching(scheduler, stuck)
    for _ in range(upkeep.STUCK_TURNS):
        watchdog._watch()
    assert stuck == []
    watchdog._watch()
    assert stuck == ["stuck"]
    assert upkeep.STUCK_TURNS * upkeep.WATCH_SECONDS == 180


def test_one_that_turns_now_and_then_is_left_alone() -> None:
    scheduler, stuck = SimpleNamespace(turns=0, identity="host:1"), []  # type: ignore[var-annotated]
    watchdog = watching(scheduler, stuck)
    for number in range(5 * upkeep.STUCK_TURNS):
        scheduler.turns = number // (upkeep.STUCK_TURNS - 1)
        watchdog._watch()
    assert stuck == []


@pytest.mark.django_db(transaction=True)
def test_a_fault_in_the_loop_ends_the_process_with_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(using: str) -> None:
        raise ZeroDivisionError("a fault in the engine")

    monkeypatch.setattr(tick, "tick", fail)
    Schedule.objects.all().delete()
    assert Scheduler(using="default").run() == os.EX_SOFTWARE
    assert "the loop of scheduler" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_database_that_does_not_answer_is_tried_again_and_the_term_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Schedule.objects.all().delete()
    scheduler = Scheduler(using="default")
    calls = 0

    def fail_once(using: str) -> tick.Tick:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OperationalError("the server closed the connection")
        scheduler.request_stop()
        return tick.Tick()

    monkeypatch.setattr(tick, "tick", fail_once)
    assert scheduler.run() == 0
    assert calls == 2
    assert Leader.objects.get().term == 2, "it led anew after the fault"


@pytest.mark.django_db(transaction=True)
def test_a_leader_that_can_not_decide_slots_gives_way_to_one_that_can(
    monkeypatch: pytest.MonkeyPatch, start_worker: Callable[..., WorkerProcess]
) -> None:
    Schedule.objects.all().delete()
    refused = threading.Event()

    def refuse(using: str) -> None:
        refused.set()
        raise ProgrammingError("permission denied for table django_reliable_jobs_slot")

    monkeypatch.setattr(tick, "tick", refuse)
    disabled = Scheduler(using="default")
    ended: list[int] = []
    disabled.start(ended.append)
    try:
        wait_for(refused.is_set, what="the first to lead")
        other = start_worker(command="runscheduler", ready=False)
        schedule = schedules.create(
            "default", name="s", task="tests.tasks.nothing", options=ScheduleOptions(recurrence=Every(seconds=1))
        )
        wait_for(lambda: Slot.objects.filter(schedule_id=schedule.pk).exists(), what="a slot")
        assert Leader.objects.get().pid == other.pid
    finally:
        disabled.request_stop()
        disabled.join(timeout=60)
    assert ended == [0]


@pytest.mark.django_db(transaction=True)
def test_a_leader_that_does_not_know_a_task_gives_way_once_to_one_that_may(
    monkeypatch: pytest.MonkeyPatch, start_worker: Callable[..., WorkerProcess]
) -> None:
    monkeypatch.setattr(tick, "RETRY_BROKEN", timedelta(seconds=1))
    Schedule.objects.all().delete()
    options = ScheduleOptions(recurrence=Every(seconds=1))
    schedule = schedules.create("default", name="s", task="tests.tasks.nothing", options=options)
    schedules.pause("default", [schedule.pk])
    monkeypatch.delitem(registry._tasks, "tests.tasks.nothing")
    old = Scheduler(using="default")
    ended: list[int] = []
    old.start(ended.append)
    try:
        wait_for(lambda: old.is_leader, what="the old release to lead")
        new = start_worker(command="runscheduler", ready=False)
        wait_for(lambda: "stands by" in new.output, what="the new release to stand by")
        schedules.resume("default", [schedule.pk])
        made = Slot.objects.filter(schedule_id=schedule.pk, outcome="job")
        wait_for(made.exists, timeout=40, what="a slot with a job")
        assert Leader.objects.get().pid == new.pid
        new.kill()
        wait_for(lambda: old.is_leader, timeout=30, what="the old release to lead again")
        wait_for(lambda: Schedule.objects.exclude(error="").exists(), what="the schedule to be broken")
        term, turns = Leader.objects.get().term, old.turns
        wait_for(lambda: old.turns > turns + 5, what="five more turns")
        assert old.is_leader and Leader.objects.get().term == term, "it gives way once for each task"
    finally:
        old.request_stop()
        old.join(timeout=60)
    assert ended == [0]


@pytest.mark.django_db(transaction=True)
def test_of_two_releases_the_one_that_leads_says_what_is_declared(
    start_worker: Callable[..., WorkerProcess],
) -> None:
    def pause_reason() -> str:
        return Schedule.objects.get(name=DECLARED).pause_reason

    Schedule.objects.all().delete()
    new = start_worker(command="runscheduler", ready=False)
    wait_for(lambda: " leads (term" in new.output, what="the new release to lead")
    wait_for(lambda: Schedule.objects.filter(name=DECLARED).exists(), what="its schedule")
    ended: list[int] = []
    with only_declared():  # the old release, which knows nothing of that schedule, starts last
        old = Scheduler(using="default")
        old.start(ended.append)
        try:
            wait_for(lambda: old.turns >= 3, what="the old release to stand by")
            assert pause_reason() == "" and not old.is_leader
            new.send(signal.SIGTERM)
            wait_for(pause_reason, what="the old release to lead and to have its word")
            assert old.is_leader
            newer = start_worker(command="runscheduler", ready=False)
            wait_for(lambda: "stands by" in newer.output, what="the new release to stand by")
        finally:
            old.request_stop()
            old.join(timeout=60)
        wait_for(lambda: not pause_reason(), what="the new release to lead and to have its word")
    assert ended == [0] and Leader.objects.get().pid == newer.pid


@pytest.mark.django_db(transaction=True)
def test_a_declared_schedule_that_somebody_holds_keeps_nobody_from_leading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_module, "FOLLOW_AGAIN_SECONDS", 1.0)
    Schedule.objects.all().delete()
    ended: list[int] = []
    with only_declared(("held", Every(hours=1), {})):
        reconcile.sync("default")
        other = schedules.create(
            "default", name="s", task="tests.tasks.nothing", options=ScheduleOptions(recurrence=Every(seconds=1))
        )
    with only_declared(), on_stage("holder") as (holder,):
        holder.begins()
        holder.does(lambda: list(Schedule.objects.select_for_update().filter(name="held")))
        scheduler = Scheduler(using="default")
        scheduler.start(ended.append)
        try:
            wait_for(lambda: Slot.objects.filter(schedule_id=other.pk).exists(), what="a slot of the other")
            assert Schedule.objects.get(name="held").paused_at is None
            holder.commits()
            wait_for(lambda: Schedule.objects.get(name="held").paused_at, what="the code to be followed")
        finally:
            scheduler.request_stop()
            scheduler.join(timeout=60)
    assert ended == [0]


@pytest.mark.django_db(transaction=True)
def test_a_due_schedule_that_somebody_holds_keeps_no_scheduler_busy() -> None:
    Schedule.objects.all().delete()
    schedule = schedules.create(
        "default", name="s", task="tests.tasks.nothing", options=ScheduleOptions(recurrence=Every(seconds=1))
    )
    wait_for(lambda: tick.seconds_until_due("default") <= 0, what="its slot")
    scheduler = Scheduler(using="default")
    with on_stage("holder") as (holder,):
        holder.begins()
        holder.does(lambda: list(Schedule.objects.select_for_update().filter(pk=schedule.pk)))
        with only_declared():
            assert scheduler._turn() == scheduler_module.HELD_SECONDS and scheduler.is_leader
            holder.commits()
            assert scheduler._turn() == 0.0
    assert Slot.objects.filter(schedule_id=schedule.pk, outcome="job").exists()
