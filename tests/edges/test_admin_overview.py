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
from django_reliable_jobs.testing import run_jobs
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


def a_run(schedule: Schedule, ago: timedelta, **row: Any) -> Job:
    """A job of a slot; it succeeded, unless the columns say otherwise."""
    slot = timezone.now() - ago
    given = {"task": "x", "status": "SUCCEEDED", "run_after": slot, "slot": slot, "schedule_id": schedule.pk, **row}
    if given["status"] in Job.ENDED:
        given.setdefault("finished_at", slot)
    job = Job.objects.create(**given)
    Slot.objects.create(schedule_id=schedule.pk, slot=slot, outcome="job", job_id=job.pk)
    return job


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

    def test_what_is_older_than_a_day_is_no_news_once_it_ran_again(self) -> None:
        schedule = a_schedule_of_today()
        a_slot(schedule, timedelta(hours=25))
        a_run(schedule, timedelta(hours=24.5))
        assert health_of(schedule) == "well"

    @pytest.mark.parametrize("ago", [timedelta(hours=25), timedelta(days=9)])
    def test_a_weekly_one_that_did_not_run_stays_in_trouble_until_its_next_slot(self, ago: timedelta) -> None:
        schedule = a_schedule_of_today()
        a_run(schedule, ago + timedelta(days=7))
        a_slot(schedule, ago)
        assert health_of(schedule) == "absent"
        last = timezone.now() - ago + timedelta(hours=1)
        a_range = {"first": last, "last": last, "count": 1, "outcome": "missed", "reason": "misfire"}
        SlotRange.objects.create(schedule_id=schedule.pk, **a_range)
        [standing], _ = standings.schedules("default", timezone.now())
        assert standing.absence is not None and standing.absence.reason == "misfire", "the range is newer"

    def test_it_says_that_no_scheduler_decided_in_time(self, admin_client: Client) -> None:
        a_slot(a_schedule_of_today(), timedelta(hours=6))
        assert "; no scheduler had decided it by " in shown(admin_client)

    @pytest.mark.parametrize("reason", ["edited", "replaced"])
    def test_what_a_person_asked_for_is_no_news(self, reason: str) -> None:
        schedule = a_schedule_of_today()
        a_run(schedule, timedelta(hours=2))
        a_slot(schedule, timedelta(hours=1), outcome="skipped", reason=reason)
        assert health_of(schedule) == "well"

    def test_a_pause_of_the_night_is_told_in_the_morning(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today()
        a_slot(schedule, timedelta(hours=6), outcome="skipped", reason="paused")
        assert health_of(schedule) == "skipped"
        assert "the schedule was paused" in shown(admin_client)

    def test_one_that_has_not_run_yet_is_not_called_well(self, admin_client: Client) -> None:
        assert health_of(a_schedule_of_today()) == "new"
        assert "has not run yet" in shown(admin_client)

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

    def test_one_that_died_long_ago_says_why_until_it_runs_again(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today()
        a_run(schedule, timedelta(days=3), status="DEAD", reason="no dial tone")
        assert health_of(schedule) == "failed"
        assert "no dial tone" in shown(admin_client)

    def test_one_whose_job_waits_for_a_worker_says_so(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today()
        job = a_run(schedule, timedelta(hours=6), status="READY", queue_name="mail")
        assert health_of(schedule) == "stuck"
        assert "no worker serves its queue, mail" in shown(admin_client)
        a_worker(serves=["mail"])
        assert "waits since" in shown(admin_client) and "in the queue mail" in shown(admin_client)
        queues.pause("default", ["mail"])
        text = shown(admin_client)
        assert "has not started" in text and "its queue, mail, is paused" in text and f"#{job.pk}" in text

    @pytest.mark.parametrize("status", ["READY", "SCHEDULED"])
    def test_a_job_that_waits_for_minutes_is_no_trouble(self, status: str) -> None:
        schedule = a_schedule_of_today()
        a_run(schedule, timedelta(minutes=9), status=status)
        assert health_of(schedule) == "well"
        a_run(schedule, timedelta(minutes=11), status=status)
        assert health_of(schedule) == "stuck"

    def test_a_job_that_waits_for_the_one_before_it_is_no_trouble(self) -> None:
        schedule = a_schedule_of_today()
        a_run(schedule, timedelta(hours=1), status="READY", serial_key=schedule.serial_key)
        assert health_of(schedule) == "stuck"
        running = {"token": 1, "worker_id": 1, "started_at": Now(), "claims": 1}
        a_run(schedule, timedelta(hours=2), status="RUNNING", serial_key=schedule.serial_key, **running)
        assert health_of(schedule) == "well"

    def test_one_that_is_tried_again_says_when_and_why(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today()
        later = {"run_after": timezone.now() + timedelta(minutes=5), "attempt": 1, "claims": 1, "max_attempts": 3}
        a_run(schedule, timedelta(minutes=1), status="SCHEDULED", reason="OSError: no route", **later)
        assert health_of(schedule) == "retrying"
        assert "attempt 1 of 3 did not succeed" in shown(admin_client)
        assert "OSError: no route" in shown(admin_client)

    def test_one_whose_job_was_not_started_in_time_did_not_run(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today(start_deadline=timedelta(hours=1))
        slot = timezone.now() - timedelta(hours=6)
        late = {"task": schedule.task, "status": "READY", "start_before": slot + timedelta(hours=1)}
        job = a_run(schedule, timedelta(hours=6), **late)
        run_jobs(raise_errors=False)
        job.refresh_from_db()
        assert job.status == "CANCELLED", "the premise: a worker came too late for it"
        a_run(schedule, timedelta(minutes=1))
        assert health_of(schedule) == "absent"
        assert "1 job was not started in time: no worker was free before" in shown(admin_client)

    def test_one_whose_last_job_was_cancelled_says_so(self, admin_client: Client) -> None:
        schedule = a_schedule_of_today()
        a_run(schedule, timedelta(hours=1), status="CANCELLED", reason="cancelled by ada")
        assert health_of(schedule) == "cancelled"
        assert "cancelled by ada" in shown(admin_client)

    def test_broken_and_paused_ones_say_so(self, admin_client: Client) -> None:
        a_schedule_of_today("broken", error="no such zone", error_at=Now(), retry_at=Now())
        a_schedule_of_today("held", paused_at=Now(), next_run_at=None, pause_reason="inventory")
        text = shown(admin_client)
        assert "no such zone" in text and "inventory" in text

    def test_it_says_if_there_are_more_than_it_looked_at(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("one", "two", "three"):
            a_schedule_of_today(name)
        assert "were looked at" not in shown(admin_client)
        monkeypatch.setattr(standings, "MOST_SCHEDULES", 2)
        assert "All schedules The first 2 by name were looked at." in shown(admin_client)

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


def test_what_a_job_said_is_for_who_may_view_jobs(client: Client) -> None:
    schedule = a_schedule_of_today()
    a_run(schedule, timedelta(hours=1), status="DEAD", reason="no card 4711")
    later = {"run_after": timezone.now() + timedelta(minutes=5), "attempt": 1, "claims": 1, "max_attempts": 3}
    a_run(schedule, timedelta(minutes=1), status="SCHEDULED", reason="no card 4711", **later)
    user = User.objects.create_user("ada", is_staff=True)
    client.force_login(user)
    pages = [FRAGMENT, f"{INDEX}schedule/{schedule.pk}/runs/", f"{INDEX}schedule/{schedule.pk}/runs.csv"]
    for name, sees in (("view_schedule", False), ("view_job", True)):
        user.user_permissions.add(Permission.objects.get(codename=name))
        for page in pages:
            assert ("no card 4711" in shown(client, page)) == sees, page
        assert "failed" in shown(client)


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
