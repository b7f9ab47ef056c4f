"""Real schedulers: they lead, are killed, stopped and woken, and live in another time."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_reliable_jobs.engine import schedules
from django_reliable_jobs.models import Job, Leader, Schedule, Slot, SlotRange
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.schedule_options import ScheduleOptions
from django_reliable_jobs.testing import tick
from tests.actors import wait_for
from tests.models import Effect
from tests.schedules import a_schedule as an_hourly_schedule
from tests.schedules import on, slots_of
from tests.workers import WorkerProcess

Start = Callable[..., WorkerProcess]


@pytest.fixture
def start_scheduler(start_worker: Start) -> Iterator[Start]:
    """Return a function that starts a real scheduler; there are no schedules but those of the test."""
    Schedule.objects.all().delete()

    def start(*arguments: str, **options: Any) -> WorkerProcess:
        return start_worker(*arguments, command="runscheduler", ready=False, **options)

    yield start


def a_schedule(recurrence: Any, name: str = "s", task: str = "tests.tasks.nothing", **options: Any) -> Schedule:
    return schedules.create("default", name=name, task=task, options=ScheduleOptions(recurrence=recurrence, **options))


def leader_pid() -> int | None:
    """The process that leads now, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM django_reliable_jobs_leader WHERE expires_at > clock_timestamp()")
        row = cursor.fetchone()
    return row[0] if row else None


def test_it_makes_the_jobs_of_slots_and_sleeps_until_the_next(start_scheduler: Start) -> None:
    schedule = a_schedule(Every(seconds=1), overlap="allow")
    scheduler = start_scheduler(settings={"POLL_SECONDS": 60})

    def late() -> list[float]:
        slots = Slot.objects.filter(schedule_id=schedule.pk).order_by("slot")[1:]
        return [(slot.decided_at - slot.slot).total_seconds() for slot in slots]

    # It does not poll: it wakes for a slot. A busy machine may hold one up.
    wait_for(
        lambda: sum(seconds < 0.5 for seconds in late()) >= 2, what="two slots for which it woke, and did not poll"
    )
    assert min(late()) >= 0, late()
    scheduler.send(signal.SIGTERM)
    assert scheduler.wait() == 0, scheduler.output


def test_a_change_wakes_it_before_its_poll(start_scheduler: Start) -> None:
    start_scheduler(settings={"POLL_SECONDS": 60, "LEADER_SECONDS": 600})
    wait_for(leader_pid, what="the leader")
    schedule = a_schedule(Once(at=timezone.now() + timedelta(seconds=1.5)))
    wait_for(lambda: Job.objects.filter(schedule_id=schedule.pk).exists(), timeout=40, what="the job")
    edited = schedules.edit("default", schedule.pk, recurrence=Once(at=timezone.now() + timedelta(seconds=1)))
    wait_for(lambda: Slot.objects.filter(schedule_id=edited.pk).count() == 2, timeout=40, what="the second slot")


def test_a_change_is_seen_without_notify(start_scheduler: Start) -> None:
    start_scheduler(settings={"LISTEN": "off"})
    wait_for(leader_pid, what="the leader")
    schedule = a_schedule(Once(at=timezone.now() + timedelta(seconds=0.5)))
    wait_for(lambda: Job.objects.filter(schedule_id=schedule.pk).exists(), what="the job")


def test_a_change_made_in_sql_is_seen(start_scheduler: Start) -> None:
    schedule = a_schedule(Cron("0 0 1 1 *"))
    start_scheduler()
    wait_for(leader_pid, what="the leader")
    Schedule.objects.filter(pk=schedule.pk).update(recurrence=Every(seconds=1).as_dict(), effective_gap="")
    wait_for(lambda: Job.objects.filter(schedule_id=schedule.pk).exists(), what="the job")


def test_a_standby_takes_over_from_a_killed_leader_when_its_term_runs_out(start_scheduler: Start) -> None:
    settings = {"LEADER_SECONDS": 4}
    first = start_scheduler(settings=settings)
    wait_for(leader_pid, what="the first leader")
    second = start_scheduler(settings=settings)
    wait_for(lambda: "stands by" in second.output, what="the standby")
    term = Leader.objects.get().term
    first.kill()
    wait_for(lambda: leader_pid() == second.pid, timeout=15, what="the standby to lead")
    assert Leader.objects.get().term == term + 1


def test_a_standby_takes_over_from_a_stopped_leader_long_before_its_term_runs_out(start_scheduler: Start) -> None:
    settings = {"LEADER_SECONDS": 600}
    first = start_scheduler(settings=settings)
    wait_for(leader_pid, what="the first leader")
    second = start_scheduler(settings=settings)
    wait_for(lambda: "stands by" in second.output, what="the standby")
    first.send(signal.SIGTERM)
    wait_for(lambda: leader_pid() == second.pid, what="the standby to lead")
    assert first.wait() == 0


def test_it_goes_on_after_its_sessions_were_ended(start_scheduler: Start) -> None:
    schedule = a_schedule(Every(seconds=1), overlap="allow", catch_up="all")
    start_scheduler()
    wait_for(lambda: Slot.objects.filter(schedule_id=schedule.pk).count() >= 1, what="the first slot")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    seen = Slot.objects.filter(schedule_id=schedule.pk).count()
    wait_for(lambda: Slot.objects.filter(schedule_id=schedule.pk).count() >= seen + 3, what="three more slots")
    assert_every_second_has_one_job(schedule)


def test_a_worker_with_a_scheduler_needs_no_other(start_scheduler: Start, start_worker: Start) -> None:
    schedule = a_schedule(Every(seconds=1), task="tests.tasks.effect", kwargs={"name": "x"}, overlap="allow")
    worker = start_worker("--with-scheduler")
    wait_for(lambda: Effect.objects.count() >= 2, what="two runs")
    assert leader_pid() == worker.pid
    assert Slot.objects.filter(schedule_id=schedule.pk, outcome="job").count() >= 2
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0, worker.output
    assert leader_pid() is None, "it resigned"


def test_a_burst_with_a_scheduler_makes_what_is_due_and_runs_it(start_scheduler: Start, start_worker: Start) -> None:
    soon = timezone.now() + timedelta(seconds=0.2)
    schedule = a_schedule(Once(at=soon), task="tests.tasks.effect", kwargs={"name": "x"}, overlap="allow")
    wait_for(lambda: timezone.now() > schedule.next_run_at, what="the slot to be due")
    assert start_worker("--with-scheduler", "--burst").wait() == 0
    assert Effect.objects.get().name == "x"


def test_jobs_of_a_schedule_that_queues_never_run_side_by_side(start_scheduler: Start, start_worker: Start) -> None:
    schedule = a_schedule(
        Every(seconds=1), task="tests.tasks.slow", kwargs={"seconds": 2.2}, overlap="queue", catch_up="all"
    )
    start_worker("--with-scheduler", "--threads", "4")
    start_worker("--with-scheduler", "--threads", "4")
    wait_for(lambda: Effect.objects.filter(name="slow ends").count() >= 3, what="three runs")
    names = list(Effect.objects.order_by("id").values_list("name", flat=True))
    pairs = list(zip(names[::2], names[1::2], strict=False))
    assert set(pairs) == {("slow begins", "slow ends")}, names
    assert Slot.objects.filter(schedule_id=schedule.pk, reason="overlap").exists(), "further ones are left out"


def test_replace_cancels_the_running_job_and_the_new_one_starts_when_it_has_ended(start_worker: Start) -> None:
    Schedule.objects.all().delete()
    schedule = an_hourly_schedule(task="tests.tasks.until_stopping", overlap="replace")
    start_worker("--threads", "4")
    jobs = []
    for hour in (1, 2, 3):  # slots long past, decided by hand: each when the job before it runs
        [job] = tick(at=on(2, hour))
        wait_for(lambda pk=job.pk: Job.objects.filter(pk=pk, status="RUNNING").exists(), what="its turn")
        jobs.append(job)
    for job, successor in pairwise(jobs):
        job.refresh_from_db(), successor.refresh_from_db()
        assert job.status == "CANCELLED"
        assert job.reason == f"replaced by the job of its schedule for {successor.slot.isoformat()}"
        assert job.finished_at <= successor.started_at
    assert set(slots_of(schedule).values()) == {"job"}


def assert_every_second_has_one_job(schedule: Schedule) -> None:
    """Whatever happened: the slots follow each other second by second, each with a job of its own."""
    schedule.refresh_from_db()
    decided = list(Slot.objects.filter(schedule_id=schedule.pk, slot__lte=schedule.decided_until).order_by("slot"))
    moments = [slot.slot for slot in decided]
    steps = Counter((later - earlier).total_seconds() for earlier, later in pairwise(moments))
    assert set(steps) == {1.0}, steps
    assert {slot.outcome for slot in decided} == {"job"}
    assert not SlotRange.objects.filter(schedule_id=schedule.pk).exists()
    by_slot = Counter(Job.objects.filter(schedule_id=schedule.pk).values_list("slot", flat=True))
    assert set(by_slot.values()) == {1}
    assert set(moments) <= set(by_slot)
    assert {slot.job_id for slot in decided} <= set(
        Job.objects.filter(schedule_id=schedule.pk).values_list("id", flat=True)
    )


@pytest.mark.heavy
def test_five_schedulers_decide_every_slot_once_through_kills_stops_and_a_wrong_clock(start_scheduler: Start) -> None:
    schedule = a_schedule(Every(seconds=1), overlap="allow", catch_up="all", catch_up_limit=1000)
    others = [
        a_schedule(Every(seconds=2), name=f"other {number}", catch_up="all", overlap="allow") for number in range(20)
    ]
    faketime = shutil.which("faketime")
    assert faketime, "install faketime: apt-get install faketime"
    quick = {"LEADER_SECONDS": 2}
    fleet = [start_scheduler(settings=quick) for _ in range(3)]
    frozen = start_scheduler(settings=quick)
    ahead = start_scheduler(settings=quick, before=[faketime, "-f", "+120s"])  # two minutes
    until = time.monotonic() + 60
    kills, freezes = 0, 0
    while time.monotonic() < until or (not freezes and time.monotonic() < until + 120):
        pid = wait_for(leader_pid, timeout=20, what="a leader")
        seen = Slot.objects.filter(schedule_id=schedule.pk).count()
        wait_for(lambda n=seen: Slot.objects.filter(schedule_id=schedule.pk).count() >= n + 3, what="three slots")
        if pid in (frozen.pid, ahead.pid):
            leader = frozen if pid == frozen.pid else ahead
            leader.send(signal.SIGSTOP)
            wait_for(lambda pid=pid: leader_pid() not in (None, pid), timeout=20, what="another leader")
            leader.send(signal.SIGCONT)
            freezes += leader is frozen
        else:
            for each in fleet:
                if each.pid == pid:
                    each.kill()
                    fleet[fleet.index(each)] = start_scheduler(settings=quick)
                    kills += 1
    assert kills >= 3 and freezes >= 1
    assert_every_second_has_one_job(schedule)
    for other in others:
        slots = list(Slot.objects.filter(schedule_id=other.pk).order_by("slot"))  # they go on meanwhile
        assert {slot.outcome for slot in slots} == {"job"}
        jobs = Counter(Job.objects.filter(schedule_id=other.pk).values_list("slot", flat=True))
        assert {jobs[slot.slot] for slot in slots} == {1}
        assert len(slots) == (slots[-1].slot - slots[0].slot).total_seconds() / 2 + 1
