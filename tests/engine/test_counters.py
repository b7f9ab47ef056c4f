"""Counts by minute, and the pulses of watched tasks."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from django_reliable_jobs.engine import counters, maintenance
from django_reliable_jobs.engine.counters import Counted
from django_reliable_jobs.models import MinuteCount, Pulse, Worker
from django_reliable_jobs.testing import at
from tests.schedules import on
from tests.states import a_running_job, status_of

pytestmark = pytest.mark.django_db

MAIL = Counted("mail", "shop.send", "succeeded")
WATCHED = Counted("default", "tests.tasks.watched", "succeeded")


def add(minute: int, second: int = 0, counted: Counted = MAIL, count: int = 1, seconds: float = 0.5) -> None:
    with at(on(2, 12, minute, second)):
        counters.add("default", {counted: (count, seconds)})


def test_what_happens_within_a_minute_is_one_row() -> None:
    add(1, 0, count=3)
    add(1, 59, count=4)
    add(2, 0, count=5)
    rows = MinuteCount.objects.order_by("minute").values_list("minute", "queue_name", "task", "outcome", "count")
    assert list(rows) == [
        (on(2, 12, 1), "mail", "shop.send", "succeeded", 7),
        (on(2, 12, 2), "mail", "shop.send", "succeeded", 5),
    ]
    assert MinuteCount.objects.get(minute=on(2, 12, 1)).seconds == 1.0


def test_tasks_are_summed_up_by_minute_queue_and_outcome() -> None:
    add(1, count=3)
    add(1, counted=Counted("mail", "shop.other", "succeeded"), count=4)
    add(1, counted=Counted("mail", "shop.send", "dead"), count=5)
    add(30, count=6)
    with at(on(2, 12, 31)):
        minutes = counters.per_minute("default", timedelta(hours=1))
        assert [(each.minute.minute, each.outcome, each.attempts) for each in minutes] == [
            (1, "dead", 5),
            (1, "succeeded", 7),
            (30, "succeeded", 6),
        ]
        assert [each.attempts for each in counters.per_minute("default", timedelta(minutes=10))] == [6]


def test_counts_older_than_thirty_days_are_forgotten() -> None:
    add(1)
    add(2)
    with at(on(2, 12, 1, 30) + timedelta(days=30)):
        counters.prune("default")
    assert MinuteCount.objects.get().minute == on(2, 12, 2)


class TestPulses:
    def test_a_task_that_declares_alert_after_is_watched_from_then_on(self) -> None:
        with at(on(2)):
            counters.declare("default")
        with at(on(3)):
            counters.declare("default")
        pulse = Pulse.objects.get(task="tests.tasks.watched")
        assert (pulse.watched_since, pulse.succeeded_at) == (on(2), None)
        assert not Pulse.objects.filter(task="tests.tasks.nothing").exists()

    def test_a_task_that_no_longer_does_is_watched_no_more(self) -> None:
        Pulse.objects.create(task="tests.tasks.nothing")
        Pulse.objects.create(task="of.another.release")
        counters.declare("default")
        assert set(Pulse.objects.values_list("task", flat=True)) >= {"tests.tasks.watched", "of.another.release"}
        assert not Pulse.objects.filter(task="tests.tasks.nothing").exists()

    def test_each_success_is_a_beat_and_nothing_else_is(self) -> None:
        counters.declare("default")
        add(1, counted=WATCHED._replace(outcome="dead"))
        assert Pulse.objects.get(task="tests.tasks.watched").succeeded_at is None
        add(2, counted=WATCHED)
        assert Pulse.objects.get(task="tests.tasks.watched").succeeded_at == on(2, 12, 2)
        add(1, counted=WATCHED)
        assert Pulse.objects.get(task="tests.tasks.watched").succeeded_at == on(2, 12, 2), "it never goes back"


class TestLost:
    def test_attempts_that_were_lost_with_their_worker_are_counted(self) -> None:
        job = a_running_job()
        worker = Worker.objects.get()
        maintenance.rescue_dead("default", worker.pk, started=None, cause="killed")
        assert list(MinuteCount.objects.values_list("queue_name", "task", "outcome", "count")) == [
            (job.queue_name, job.task, "lost", 1)
        ]

    def test_what_had_not_started_was_not_lost(self) -> None:
        a_running_job()
        maintenance.rescue_dead("default", Worker.objects.get().pk, started=[], cause="killed")
        assert not MinuteCount.objects.exists()

    def test_jobs_are_taken_back_also_if_they_can_not_be_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        job = a_running_job()
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_reliable_jobs_minutecount RENAME TO gone")
        maintenance.rescue_dead("default", Worker.objects.get().pk, started=None, cause="killed")
        assert status_of(job) == "READY"
        assert "1 lost attempts could not be counted" in caplog.text
