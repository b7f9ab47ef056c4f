"""The scheduler tells of alerts in a thread of its own: whatever its channels do, schedules run on time."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from django_reliable_jobs import signals
from django_reliable_jobs.engine import findings
from django_reliable_jobs.models import Alert, Job, Leader, Notice, Schedule, Slot
from django_reliable_jobs.processes import telling
from django_reliable_jobs.processes.telling import Telling
from django_reliable_jobs.recurrence import Every
from tests import tasks
from tests.actors import wait_for
from tests.edges.jobs_command import failing
from tests.http_server import WebServer, web_server
from tests.schedules import a_schedule
from tests.workers import WorkerProcess

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_declared_schedules(transactional_db: None) -> None:
    Schedule.objects.all().delete()


class Kept:
    """A channel that keeps what it is told, or does what `fault` does."""

    def __init__(self, name: str = "kept", fault: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self.told: list[tuple[str, str]] = []
        self._fault = fault

    def send(self, notices: Sequence[Any]) -> None:
        self._fault()
        self.told += [(notice.event, notice.alert.subject) for notice in notices]


class Leading:
    """What the thread sees of its scheduler."""

    def __init__(self) -> None:
        self.using = "default"
        self.is_leader = True
        self.term_and_vacancy: tuple[int | None, Any] = (1, None)


def a_teller(*channels: Kept, scheduler: Any = None) -> Telling:
    return Telling(scheduler or Leading(), channels, on_death=lambda name, error: None)


def a_dead_job() -> None:
    job = tasks.once.enqueue()
    Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=Now())


def raise_error() -> None:
    raise ValueError("no route")


def test_an_alert_is_told_once_and_its_end_too() -> None:
    kept = Kept()
    teller = a_teller(kept)
    a_dead_job()
    for _ in range(3):
        teller._turn_once()
    assert kept.told == [("opened", "tests.tasks.once")]
    Job.objects.all().delete()
    for _ in range(3):
        teller._turn_once()
    assert kept.told == [("opened", "tests.tasks.once"), ("resolved", "tests.tasks.once")]


def test_an_alert_of_a_schedule_ends_with_the_schedule() -> None:
    kept = Kept()
    teller = a_teller(kept)
    schedule = a_schedule(Every(hours=1), alert_after=timedelta(hours=2))  # since 2 March 2026
    teller._turn_once()
    assert ("opened", schedule.name) in kept.told
    schedule.delete()
    teller._turn_once()
    assert ("resolved", schedule.name) in kept.told


def test_a_row_that_can_not_be_judged_silences_no_other_alert(caplog: pytest.LogCaptureFixture) -> None:
    schedule = a_schedule(Every(hours=1), alert_after=timedelta(hours=2))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE django_reliable_jobs_schedule SET alert_after = '9000 years' WHERE id = %s", [schedule.pk]
        )
    a_dead_job()
    kept = Kept()
    a_teller(kept)._turn_once()
    assert ("opened", "tests.tasks.once") in kept.told
    assert "it can't be seen whether there is: schedule_silent" in caplog.text
    assert failing("check", code=3)[1].startswith("A row can't be judged: timestamp out of range")


def test_who_does_not_lead_tells_nothing() -> None:
    a_dead_job()
    scheduler = Leading()
    scheduler.is_leader = False
    a_teller(Kept(), scheduler=scheduler)._turn_once()
    assert not Alert.objects.exists()


def test_a_channel_that_fails_loses_nothing_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    broken, kept = Kept("broken", raise_error), Kept()
    teller = a_teller(broken, kept)
    a_dead_job()
    teller._turn_once()
    assert kept.told == [("opened", "tests.tasks.once")]
    assert "alerts can't be told through the channel broken: ValueError: no route" in caplog.text
    broken._fault = lambda: None
    Notice.objects.update(due_at=Now())
    teller._turn_once()
    assert broken.told == [("opened", "tests.tasks.once")]
    assert not Notice.objects.exists()


def test_a_channel_that_hangs_is_left_behind_and_not_used_again_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telling, "SEND_SECONDS", 0.05)
    free, calls = threading.Event(), []

    def hang() -> None:
        calls.append(1)
        free.wait(30)

    hanging, kept = Kept("hanging", hang), Kept()
    teller = a_teller(hanging, kept)
    a_dead_job()
    teller._turn_once()
    assert kept.told == [("opened", "tests.tasks.once")]
    Notice.objects.update(due_at=Now())
    teller._turn_once()
    teller._turn_once()
    assert len(calls) == 1
    assert caplog.text.count("the channel hanging hangs") == 1, "it is said now and then"
    free.set()
    wait_for(lambda: not teller._sending["hanging"].is_alive(), what="the end of the message")
    teller._turn_once()
    assert len(calls) == 2


def test_signals_tell_of_begin_and_end_and_a_receiver_that_raises_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[tuple[str, str]] = []

    def opened(alert: Alert, using: str, **_: Any) -> None:
        heard.append(("opened", alert.subject))
        raise ValueError("a fault of the receiver")

    def resolved(alert: Alert, **_: Any) -> None:
        heard.append(("resolved", alert.subject))

    signals.alert_opened.connect(opened)
    signals.alert_resolved.connect(resolved)
    try:
        kept = Kept()
        teller = a_teller(kept)
        a_dead_job()
        teller._turn_once()
        Job.objects.all().delete()
        teller._turn_once()
    finally:
        signals.alert_opened.disconnect(opened)
        signals.alert_resolved.disconnect(resolved)
    assert heard == [("opened", "tests.tasks.once"), ("resolved", "tests.tasks.once")]
    assert len(kept.told) == 2
    assert "a receiver of a signal failed" in caplog.text


def test_who_leads_after_nobody_led_tells_of_it_once() -> None:
    a_schedule(Every(hours=1))
    scheduler, kept = Leading(), Kept()
    teller = a_teller(kept, scheduler=scheduler)
    a_leader_row()
    elected_at = timezone.now()
    scheduler.term_and_vacancy = (2, (elected_at - timedelta(seconds=50), elected_at))
    teller._turn_once()
    assert not Alert.objects.filter(kind="no_scheduler").exists()
    scheduler.term_and_vacancy = (3, (elected_at - timedelta(seconds=70), elected_at))
    teller._turn_once()
    assert ("opened", "scheduler") in kept.told
    teller._turn_once()
    teller._turn_once()
    assert Alert.objects.get(kind="no_scheduler").resolved_at is not None
    assert kept.told.count(("resolved", "scheduler")) == 1


def a_leader_row() -> None:
    Leader.objects.create(
        name="scheduler",
        holder=1,
        term=1,
        host="host",
        pid=1,
        elected_at=Now(),
        expires_at=Now() + timedelta(hours=1),
    )


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


def settings_for(server: WebServer, **more: Any) -> dict[str, Any]:
    channels = [{"kind": "webhook", "url": server.url}]
    return {"ALERT_CHANNELS": channels, "ALLOW_PRIVATE_ADDRESSES": True, "LEADER_SECONDS": 2, **more}


def told(server: WebServer) -> list[tuple[str, str]]:
    return [(each["event"], each["kind"]) for body in server.bodies for each in json.loads(body)["alerts"]]


def test_two_schedulers_tell_of_an_alert_once_also_when_the_leader_is_killed(
    start_worker: Callable[..., WorkerProcess], server: WebServer
) -> None:
    a_schedule(Every(hours=1))
    a_dead_job()
    first, second = (start_worker(command="runscheduler", ready=False, settings=settings_for(server)) for _ in range(2))
    wait_for(lambda: ("opened", "dead_letters") in told(server), timeout=60, what="the alert")
    leader = Leader.objects.get()
    leading, standby = (first, second) if leader.pid == first.pid else (second, first)
    leading.kill()
    wait_for(lambda: Leader.objects.get().pid == standby.pid, what="the standby to lead")
    Job.objects.all().delete()
    wait_for(lambda: ("resolved", "dead_letters") in told(server), what="the end")
    assert [each for each in told(server) if each[1] == "dead_letters"] == [
        ("opened", "dead_letters"),
        ("resolved", "dead_letters"),
    ]


def test_a_webhook_that_hangs_makes_no_slot_late(start_worker: Callable[..., WorkerProcess]) -> None:
    a_dead_job()
    schedule = a_schedule(Every(seconds=1), overlap="allow")
    with web_server(hangs=True) as server:
        scheduler = start_worker(command="runscheduler", ready=False, settings=settings_for(server))
        wait_for(lambda: server.requests, what="the message")
        seen = Slot.objects.filter(schedule_id=schedule.pk, outcome="job").count()
        wait_for(
            lambda: Slot.objects.filter(schedule_id=schedule.pk, outcome="job").count() >= seen + 3, what="more slots"
        )
        late = [
            (slot.decided_at - slot.slot).total_seconds()
            for slot in Slot.objects.filter(schedule_id=schedule.pk, outcome="job").order_by("-slot")[:3]
        ]
        assert all(0 <= each < 5 for each in late), "the message hangs for longer"
        scheduler.send(signal.SIGTERM)
        assert scheduler.wait() == 0, scheduler.output


def test_when_all_schedulers_were_down_check_fails_and_recovers_and_one_alert_tells_of_it(
    start_worker: Callable[..., WorkerProcess], server: WebServer
) -> None:
    a_schedule(Every(hours=1), since=timezone.now())
    first = start_worker(command="runscheduler", ready=False, settings=settings_for(server))
    wait_for(lambda: Leader.objects.filter(expires_at__gt=Now()).exists(), what="the leader")
    first.kill()
    Leader.objects.update(expires_at=Now() - timedelta(seconds=90))  # as if it had been down for so long
    assert "CRITICAL no_scheduler" in failing("check", code=2)[0]
    for _ in range(2):
        start_worker(command="runscheduler", ready=False, settings=settings_for(server))
    wait_for(lambda: Leader.objects.filter(expires_at__gt=Now()).exists(), what="the next leader")
    assert [each.message for each in findings.find_all("default")] == []
    wait_for(lambda: ("resolved", "no_scheduler") in told(server), what="both messages")
    assert told(server) == [("opened", "no_scheduler"), ("resolved", "no_scheduler")]
    assert Alert.objects.get().message.startswith("No scheduler led from ")
