"""The overview answers which schedule did not run and why, what failed, what waits, who works."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import strip_tags

from django_reliable_jobs.admin import overview_schedules
from django_reliable_jobs.engine import heartbeat, queues, standings
from django_reliable_jobs.models import Alert, Job, Leader, MinuteCount, Schedule, Slot, SlotRange
from tests import tasks
from tests.browser.scene import a_morning
from tests.schedules import a_schedule
from tests.states import a_running_job, a_worker

pytestmark = pytest.mark.django_db

INDEX = "/admin/django_reliable_jobs/"
FRAGMENT = f"{INDEX}job/overview/"
MARKUP = "<script>alert('x')</script>&"


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


def shown(client: Client, url: str = FRAGMENT) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return re.sub(r"\s+", " ", strip_tags(response.content.decode()))


def a_schedule_of_today(name: str = "nightly", **changes: Any) -> Schedule:
    schedule = a_schedule(name=name)
    now = timezone.now()
    row = {"next_run_at": now + timedelta(hours=1), "decided_until": now, **changes}
    Schedule.objects.filter(pk=schedule.pk).update(**row)
    return schedule


def a_slot(schedule: Schedule, ago: timedelta, **row: Any) -> None:
    Slot.objects.create(
        schedule_id=schedule.pk, slot=timezone.now() - ago, **{"outcome": "missed", "reason": "deadline", **row}
    )


def health_of(schedule: Schedule) -> str:
    found, _ = standings.schedules("default", timezone.now())
    return next(each.health for each in found if each.schedule.pk == schedule.pk)


def test_it_stands_on_the_index_of_the_app(admin_client: Client) -> None:
    text = shown(admin_client, INDEX)
    assert text.index("Schedules") < text.index("Queues") < text.index("Workers") < text.index("As of ")


class TestSchedules:
    def test_one_that_did_not_run_stands_first_and_says_why(self, admin_client: Client) -> None:
        a_schedule_of_today("a-good-one")
        a_slot(a_schedule_of_today("nightly"), timedelta(hours=6))
        text = shown(admin_client)
        assert "1 needs a look" in text
        assert text.index("nightly") < text.index("did not run") < text.index("decided after its start deadline")
        assert text.index("decided after its start deadline") < text.index("a-good-one")

    def test_the_worst_absence_is_named_whatever_was_left_out_since(self) -> None:
        schedule = a_schedule_of_today()
        a_slot(schedule, timedelta(hours=6))
        a_slot(schedule, timedelta(hours=1), outcome="skipped", reason="overlap")
        [standing], _ = standings.schedules("default", timezone.now())
        assert standing.absence is not None
        assert (standing.absence.slots, standing.absence.reason) == (2, "deadline")

    def test_ranges_count_too(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today()
        last = timezone.now() - timedelta(hours=2)
        SlotRange.objects.create(
            schedule_id=schedule.pk,
            first=last - timedelta(hours=5),
            last=last,
            count=6,
            outcome="missed",
            reason="misfire",
        )
        text = shown(admin_client)
        assert "missed, and not caught up" in text
        assert "and 5 more in the last 24 hours" in text

    def test_what_is_older_than_a_day_is_no_news(self) -> None:
        schedule = a_schedule_of_today()
        a_slot(schedule, timedelta(hours=25))
        assert health_of(schedule) == "well"

    @pytest.mark.parametrize("reason", ["paused", "edited", "replaced"])
    def test_what_a_person_asked_for_is_no_news(self, reason: str) -> None:
        schedule = a_schedule_of_today()
        a_slot(schedule, timedelta(hours=1), outcome="skipped", reason=reason)
        assert health_of(schedule) == "well"

    def test_a_slot_left_out_by_rule_is_told_but_is_no_trouble(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today()
        a_slot(schedule, timedelta(hours=1), outcome="skipped", reason="overlap")
        assert health_of(schedule) == "skipped"
        assert "an earlier job had not ended" in shown(admin_client)

    def test_one_that_nobody_decides_is_overdue(self) -> None:
        moment = timezone.now() - timedelta(minutes=5)
        schedule = a_schedule_of_today(next_run_at=moment, decided_until=moment - timedelta(hours=1))
        assert health_of(schedule) == "overdue"

    def test_a_job_that_died_is_told_with_its_reason(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today()
        job = Job.objects.create(
            task="x", status="DEAD", finished_at=Now(), schedule_id=schedule.pk, reason="no dial tone"
        )
        assert health_of(schedule) == "failed"
        assert "1 job died in the last 24 hours: no dial tone" in shown(admin_client)
        assert f"/job/{job.pk}/change/" in admin_client.get(FRAGMENT).content.decode()

    def test_broken_and_paused_ones_say_so(self, admin_client: Client) -> None:
        a_schedule_of_today("broken", error="no such zone", error_at=Now(), retry_at=Now())
        a_schedule_of_today("held", paused_at=Now(), next_run_at=None, pause_reason="inventory")
        text = shown(admin_client)
        assert "no such zone" in text and "inventory" in text

    def test_those_in_trouble_are_all_shown(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(overview_schedules, "MOST_SHOWN", 1)
        for name in ("one", "two", "three"):
            a_slot(a_schedule_of_today(name), timedelta(hours=1))
        a_schedule_of_today("good")
        text = shown(admin_client)
        assert "three" in text and "good" not in text and "All schedules" in text


def test_it_shows_queues_workers_leader_alerts_and_dead_letters(admin_client: Client) -> None:
    job = a_running_job()
    a_worker(8, serves=["mail"], excluded=["slow"], expires_at=Now() - timedelta(seconds=1))
    tasks.nothing.using(queue_name="lonely").enqueue()
    Job.objects.filter(queue_name="lonely").update(run_after=Now() - timedelta(minutes=3))
    queues.pause("default", ["held"])
    Job.objects.create(task="tests.tasks.broken_one", status="DEAD", finished_at=Now())
    lease = {"expires_at": Now() + timedelta(minutes=1), "elected_at": Now() - timedelta(hours=2)}
    Leader.objects.create(name="scheduler", holder=1, term=1, host="elsewhere", pid=5, **lease)
    Alert.objects.create(kind="queue_ageing", subject="lonely", severity="critical", message="lonely waits")
    text = shown(admin_client)
    for each in (f"#{job.pk}", "host:7", "working", "mail except slow", "silent", "lonely", "3 min", "held", "paused"):
        assert each in text
    assert "elsewhere:5 leads, for 2 h." in text
    assert "critical lonely waits" in text
    assert "Dead letters 1 tests.tasks.broken_one1" in text


def test_it_tells_how_much_memory_a_worker_uses(admin_client: Client) -> None:
    worker = a_worker(8)
    assert heartbeat.renew("default", worker, memory=300 * 1024 * 1024)
    assert "300.0 MB" in shown(admin_client)
    assert heartbeat.renew("default", worker), "what is not known changes nothing"
    assert "300.0 MB" in shown(admin_client)


def test_it_draws_what_workers_counted(admin_client: Client) -> None:
    minute = timezone.now().replace(second=0, microsecond=0)
    for outcome, count, ago in (("succeeded", 1500, 3), ("failed", 2, 3), ("dead", 1, 3), ("succeeded", 7, 90)):
        MinuteCount.objects.create(
            minute=minute - timedelta(minutes=ago), queue_name="q", task="t", outcome=outcome, count=count, seconds=1
        )
    page = admin_client.get(FRAGMENT).content.decode()
    assert "1,500 succeeded, 3 failed</title>" in page
    assert ">1,500 succeeded</span>" in page, "of the last hour"
    assert page.count("<title>") == 2


def test_it_takes_as_many_statements_for_much_as_for_little(admin_client: Client) -> None:
    numbers = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(FRAGMENT).status_code == 200
        numbers.append(len(captured))
        if len(numbers) < 2:
            a_morning()
    assert numbers[0] == numbers[1] <= 30


def test_each_sees_what_he_may_view(client: Client) -> None:
    a_morning()
    user = User.objects.create_user("ada", is_staff=True)
    client.force_login(user)
    assert client.get(FRAGMENT).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_queue"))
    text = shown(client)
    assert "newsletter" in text
    for hidden in ("nightly-invoices", "worker-a", "insufficient", "billing.charge", "critical"):
        assert hidden not in text
    assert shown(client, INDEX)


def test_who_is_not_of_the_staff_is_sent_away(client: Client) -> None:
    client.force_login(User.objects.create_user("mallory"))
    assert client.get(FRAGMENT).status_code == 302


def test_it_obeys_no_markup(admin_client: Client) -> None:
    schedule = a_schedule_of_today(MARKUP[:20] + MARKUP, error=MARKUP, error_at=Now(), retry_at=Now())
    Job.objects.create(task=MARKUP, status="DEAD", finished_at=Now(), reason=MARKUP, schedule_id=schedule.pk)
    Job.objects.create(task=MARKUP, queue_name=MARKUP)
    Alert.objects.create(kind="x", subject=MARKUP, severity="critical", message=MARKUP, acknowledged_by=MARKUP)
    page = admin_client.get(FRAGMENT).content.decode()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5
