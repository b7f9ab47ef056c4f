"""Two schedulers find the same thing, and tell of it, at the same moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db.models.functions import Now

from django_reliable_jobs.engine import alerts, notices, pings
from django_reliable_jobs.engine.alerts import Finding, Flips
from django_reliable_jobs.models import Alert, Job, Notice, Schedule
from django_reliable_jobs.processes.upkeep import PING_TASKS
from tests import tasks
from tests.actors import Actor, on_stage, wait_until_blocked
from tests.schedules import a_schedule

pytestmark = pytest.mark.django_db(transaction=True)

SILENT = Finding(kind="schedule_silent", subject="nightly", message="It is silent.")


@pytest.fixture
def actors() -> Iterator[list[Actor]]:
    with on_stage("winner", "loser") as actors:
        yield actors


def flip(*found: Finding) -> Flips:
    return alerts.flip("default", found, ["schedule_silent"], ["mail"])


def test_the_first_opens_and_tells_and_the_second_finds_it_told(actors: list[Actor]) -> None:
    winner, loser = actors
    winner.begins()
    assert len(winner.does(flip, SILENT).opened) == 1
    waiting = loser.starts(flip, SILENT)
    wait_until_blocked(loser)
    winner.commits()
    assert waiting.result(timeout=60).opened == []
    assert (Alert.objects.count(), Notice.objects.count()) == (1, 1)


def test_if_the_first_rolls_back_the_second_opens_and_tells(actors: list[Actor]) -> None:
    first, second = actors
    first.begins()
    first.does(flip, SILENT)
    waiting = second.starts(flip, SILENT)
    wait_until_blocked(second)
    first.rolls_back()
    assert len(waiting.result(timeout=60).opened) == 1
    assert (Alert.objects.count(), Notice.objects.count()) == (1, 1)


def test_one_of_two_resolves(actors: list[Actor]) -> None:
    winner, loser = actors
    flip(SILENT)
    Notice.objects.all().delete()
    winner.begins()
    assert len(winner.does(flip).resolved) == 1
    assert loser.does(flip) == Flips([], [])
    winner.commits()
    assert loser.does(flip) == Flips([], [])
    assert list(Notice.objects.values_list("event", flat=True)) == ["resolved"]


def test_one_of_two_takes_what_is_to_be_said(actors: list[Actor]) -> None:
    winner, loser = actors
    flip(SILENT)
    winner.begins()
    assert len(winner.does(notices.take, "default", "mail")) == 1
    assert loser.does(notices.take, "default", "mail") == []
    winner.commits()
    assert loser.does(notices.take, "default", "mail") == []


def test_one_of_two_schedulers_tells_of_a_start(actors: list[Actor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pings, "LOCK_SECONDS", 9.0)
    winner, loser = actors
    Schedule.objects.all().delete()
    schedule = a_schedule(ping_url="https://hc.example.com/abc")
    job = tasks.nothing.enqueue()
    running = {"token": 1, "worker_id": 1, "started_at": Now(), "claims": 1, "attempt": 1}
    Job.objects.filter(pk=job.pk).update(status="RUNNING", schedule_id=schedule.pk, **running)
    winner.begins()
    assert winner.does(pings.enqueue_due, "default", PING_TASKS) == 1
    waiting = loser.starts(pings.enqueue_due, "default", PING_TASKS)
    wait_until_blocked(loser)
    winner.commits()
    assert waiting.result(timeout=60) == 0
    assert Job.objects.filter(task="django_reliable_jobs.ping_start").count() == 1
