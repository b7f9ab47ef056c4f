"""Alerts are opened once, told of, repeated, resolved."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from django_reliable_jobs.engine import alerts, maintenance, notices
from django_reliable_jobs.engine import tick as schedule_tick
from django_reliable_jobs.engine.alerts import Finding, Flips
from django_reliable_jobs.engine.tick import Tick
from django_reliable_jobs.models import Alert, Notice, Schedule, Slot, Worker
from django_reliable_jobs.testing import at, tick
from tests.schedules import a_schedule, on
from tests.states import a_running_job

pytestmark = pytest.mark.django_db

CHANNELS = ["mail", "web"]
KINDS = ["schedule_silent", "dead_letters"]
SILENT = Finding(kind="schedule_silent", subject="nightly", message="It is silent.")


def flip(*found: Finding, looked_for: list[str] | None = None) -> Flips:
    return alerts.flip("default", found, KINDS if looked_for is None else looked_for, CHANNELS)


def subjects(some: list[Alert]) -> list[str]:
    return [alert.subject for alert in some]


def events() -> list[tuple[str, str]]:
    """What is still to be said, and through which channel."""
    return list(Notice.objects.order_by("pk").values_list("event", "channel"))


def ages(hours: float) -> None:
    """Let so many hours pass for the alerts."""
    passed = timedelta(hours=hours)
    Alert.objects.update(
        opened_at=F("opened_at") - passed,
        seen_at=F("seen_at") - passed,
        told_at=F("told_at") - passed,
        resolved_at=F("resolved_at") - passed,
    )


def test_what_is_found_is_an_alert_that_each_channel_is_to_tell_of_once() -> None:
    assert subjects(flip(SILENT).opened) == ["nightly"]
    assert flip(SILENT) == Flips([], [])
    [alert] = Alert.objects.all()
    assert (alert.kind, alert.severity, alert.message) == ("schedule_silent", "critical", "It is silent.")
    assert sorted(events()) == [("opened", "mail"), ("opened", "web")]


def test_nothing_is_written_while_nothing_changes() -> None:
    flip(SILENT)
    before = Alert.objects.values().get()
    flip(SILENT)
    assert Alert.objects.values().get() == before


def test_what_changes_is_seen_in_the_same_alert() -> None:
    flip(Finding(kind="dead_letters", subject="shop.charge", message="3 died", count=3))
    flip(Finding(kind="dead_letters", subject="shop.charge", message="10000 died", count=10_000))
    [alert] = Alert.objects.all()
    assert (alert.count, alert.message) == (10_000, "10000 died")
    assert len(events()) == len(CHANNELS)


def test_what_is_no_longer_found_is_resolved_and_said_so() -> None:
    flip(SILENT)
    Notice.objects.all().delete()
    assert subjects(flip().resolved) == ["nightly"]
    assert sorted(events()) == [("resolved", "mail"), ("resolved", "web")]
    assert flip() == Flips([], [])
    ages(1)
    assert subjects(flip(SILENT).opened) == ["nightly"], "it is an alert of its own"
    assert Alert.objects.count() == 2


def test_what_comes_and_goes_is_told_of_once_in_a_quarter_of_an_hour() -> None:
    flip(SILENT)
    flip()
    Notice.objects.all().delete()
    for _ in range(3):
        assert flip(SILENT) == Flips([], [])
        assert flip() == Flips([], [])
    assert events() == [], "who heard of nothing hears of no end"
    flip(SILENT)
    ages(0.24)
    assert flip(SILENT) == Flips([], [])
    ages(0.02)
    assert subjects(flip(SILENT).opened) == ["nightly"], "it stayed this time"
    assert subjects(flip().resolved) == ["nightly"]


def test_undos_that_fail_soon_after_one_that_was_acknowledged_are_told_at_once() -> None:
    for job in (7, 8):
        alerts.note("default", "undo_failed", "shop.refund", f"The undo of job {job} failed.")
        assert subjects(flip().opened) == ["shop.refund"]
        alerts.acknowledge("default", [Alert.objects.get(resolved_at=None).pk], by="ann")
        assert subjects(flip().resolved) == ["shop.refund"]


def test_what_was_not_looked_for_stays_open() -> None:
    flip(SILENT)
    assert flip(looked_for=["dead_letters"]) == Flips([], [])
    assert Alert.objects.get().resolved_at is None


def test_an_alert_that_stays_open_is_told_of_again_after_hours_until_it_is_acknowledged() -> None:
    flip(SILENT)
    Notice.objects.all().delete()
    ages(3.9)
    assert flip(SILENT).opened == []
    assert events() == []
    ages(0.2)
    assert flip(SILENT).opened == [], "it is no news"
    assert sorted(events()) == [("repeated", "mail"), ("repeated", "web")]
    Notice.objects.all().delete()
    ages(5)
    assert alerts.acknowledge("default", [Alert.objects.get().pk], by="ann") == [Alert.objects.get().pk]
    assert alerts.acknowledge("default", [Alert.objects.get().pk], by="bob") == []
    flip(SILENT)
    assert events() == []
    flip()
    assert sorted(events()) == [("resolved", "mail"), ("resolved", "web")], "its end is told of all the same"
    assert Alert.objects.get().acknowledged_by == "ann"


def test_a_repetition_that_was_not_said_before_the_end_is_not_said_after_it() -> None:
    flip(SILENT)
    Notice.objects.all().delete()
    ages(5)
    flip(SILENT)
    flip()
    assert sorted(events()) == [("resolved", "mail"), ("resolved", "web")]


def test_events_are_counted_in_one_alert_that_ends_after_a_quiet_hour() -> None:
    for _ in range(3):
        alerts.note("default", "worker_lost", "web-1", "the worker web-1:7 was lost", count=2)
    assert subjects(flip().opened) == ["web-1"]
    assert Alert.objects.get().count == 6
    ages(0.9)
    assert flip().resolved == []
    alerts.note("default", "worker_lost", "web-1", "again")
    ages(0.9)
    assert flip().resolved == []
    ages(0.2)
    assert subjects(flip().resolved) == ["web-1"]


def test_what_happens_on_and_on_is_found_too_and_stays_open_as_long() -> None:
    silent = Finding(kind="worker_lost", subject="web-1", message="The worker web-1:7 is silent.")
    assert subjects(flip(silent).opened) == ["web-1"]
    ages(2)
    assert flip(silent).resolved == []
    assert subjects(flip().resolved) == ["web-1"]


def test_a_failed_undo_stays_until_a_person_has_acknowledged_it() -> None:
    alerts.note("default", "undo_failed", "shop.refund", "The undo of job 7 failed.")
    flip()
    ages(1000)
    assert flip().resolved == []
    alerts.acknowledge("default", [Alert.objects.get().pk], by="ann")
    alerts.note("default", "undo_failed", "shop.refund", "The undo of job 8 failed.")
    assert flip().resolved == [], "another one failed, of which nobody knows"
    alerts.acknowledge("default", [Alert.objects.get().pk], by="ann")
    assert subjects(flip().resolved) == ["shop.refund"]


def test_texts_that_postgresql_can_not_store_are_told_all_the_same() -> None:
    flip(Finding(kind="dead_letters", subject="a\0b" + "x" * 300, message="\ud800" + "m" * 5000))
    alert = Alert.objects.get()
    assert alert.subject.startswith("a\ufffdbx")
    assert len(alert.message) == alerts.MAX_MESSAGE
    assert flip(Finding(kind="dead_letters", subject="a\0b" + "x" * 300, message="later")).resolved == []


def test_resolved_alerts_are_forgotten_after_ninety_days() -> None:
    flip(SILENT, Finding(kind="dead_letters", subject="t", message="m"))
    flip(SILENT)
    Alert.objects.exclude(resolved_at=None).update(resolved_at=Now() - timedelta(days=89))
    alerts.prune("default")
    assert Alert.objects.count() == 2
    Alert.objects.exclude(resolved_at=None).update(resolved_at=Now() - timedelta(days=91))
    alerts.prune("default")
    assert subjects(list(Alert.objects.all())) == ["nightly"]


class TestNotices:
    def test_what_was_said_is_forgotten_and_other_channels_say_it_still(self) -> None:
        flip(SILENT)
        taken = notices.take("default", "mail")
        assert [str(notice.alert) for notice in taken] == ["schedule_silent nightly"]
        assert notices.take("default", "mail") == [], "somebody says it at this moment"
        notices.said("default", taken)
        assert events() == [("opened", "web")]

    def test_what_could_not_be_said_is_due_again_later_and_later(self) -> None:
        flip(SILENT)
        waits = []
        for _ in range(9):
            taken = notices.take("default", "web")
            assert notices.unsaid("default", taken, "HTTP 500") == []
            [notice] = Notice.objects.filter(channel="web").annotate(wait=F("due_at") - Now())
            waits.append(round(notice.wait.total_seconds() / 60))
            assert notice.error == "HTTP 500"
            Notice.objects.update(due_at=Now())
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]

    def test_what_could_not_be_said_for_a_day_is_given_up(self) -> None:
        flip(SILENT)
        Notice.objects.update(created_at=Now() - timedelta(hours=24))
        given_up = notices.unsaid("default", notices.take("default", "web"), "HTTP 500")
        assert [str(notice) for notice in given_up] == [f"web: {Alert.objects.get().pk} opened"]
        assert events() == [("opened", "mail")]

    def test_channels_that_are_gone_have_nothing_to_say(self) -> None:
        flip(SILENT)
        notices.forget_channels("default", ["web"])
        assert events() == [("opened", "web")]


def tick_once(moment: datetime) -> Tick:
    with at(moment):
        return schedule_tick.tick("default")


class TestWhatHappens:
    def test_a_lost_worker_is_an_alert_of_its_host_that_is_counted_once(self) -> None:
        job = a_running_job()
        Worker.objects.update(expires_at=Now() - timedelta(seconds=1))
        maintenance.rescue("default")
        [alert] = Alert.objects.all()
        assert (alert.kind, alert.subject, alert.count) == ("worker_lost", "host", 1)
        assert alert.message.startswith("The worker on host, process 7, was lost: its lease ran out; last heartbeat ")
        job.refresh_from_db()
        assert job.status == "READY"

    def test_a_worker_that_had_announced_its_end_is_no_alert(self) -> None:
        a_running_job()
        Worker.objects.update(expires_at=Now() - timedelta(seconds=1), is_stopping=True)
        maintenance.rescue("default")
        assert not Alert.objects.exists()

    def test_a_dead_worker_is_an_alert_once_however_often_its_jobs_are_taken(self) -> None:
        a_running_job()
        worker = Worker.objects.get()
        for _ in range(2):
            maintenance.rescue_dead("default", worker.pk, started=None, cause="killed by SIGKILL")
        assert [(each.subject, each.count) for each in Alert.objects.all()] == [("host", 1)]
        assert "killed by SIGKILL" in Alert.objects.get().message

    def test_missed_slots_are_counted_in_an_alert_of_their_schedule(self) -> None:
        Schedule.objects.all().delete()
        a_schedule(catch_up="none")
        tick(at=on(2, 3, 30))
        [alert] = Alert.objects.all()
        assert (alert.kind, alert.subject, alert.count) == ("slot_missed", "hourly", 3)
        assert alert.message == (
            "The schedule hourly missed 3 slots from 2026-03-02T01:00:00+00:00 to 2026-03-02T03:00:00+00:00 (misfire)."
        )
        tick(at=on(2, 4, 30))
        assert Alert.objects.get().count == 4

    def test_slots_missed_for_two_reasons_are_counted_together(self) -> None:
        Schedule.objects.all().delete()
        a_schedule(catch_up="none", start_deadline=timedelta(hours=2))
        done = tick_once(on(2, 4, 30))
        assert [(each.slots.reason, each.slots.count) for each in done.missed] == [("deadline", 2), ("misfire", 2)]
        assert Alert.objects.get().count == 4

    def test_skipped_slots_are_no_alert(self) -> None:
        Schedule.objects.all().delete()
        a_schedule(overlap="skip")
        tick(at=on(2, 1))
        tick(at=on(2, 2))
        assert Slot.objects.filter(outcome="skipped").exists()
        assert not Alert.objects.exists()

    def test_a_tick_goes_on_if_the_alert_can_not_be_recorded(self, caplog: pytest.LogCaptureFixture) -> None:
        Schedule.objects.all().delete()
        schedule = a_schedule(catch_up="none")
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_reliable_jobs_alert RENAME TO gone")
        tick(at=on(2, 3, 30))
        schedule.refresh_from_db()
        assert (schedule.decided_until, schedule.error) == (on(2, 3), "")
        assert "an alert could not be recorded: The schedule hourly missed 3 slots" in caplog.text
