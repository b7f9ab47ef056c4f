"""The form of a schedule: checked like a declaration in code, saved by the engine alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from django_reliable_jobs import registry
from django_reliable_jobs.engine import reconcile
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.testing import at, run_jobs, tick
from tests.scheduled_tasks import only_declared
from tests.schedules import a_schedule, on, ranges_of, slots_of

pytestmark = pytest.mark.django_db

PAGES = "/admin/django_reliable_jobs/schedule/"

# What a browser sends of the form as it is at first.
BLANK = {
    "kwargs": "{}",
    "kind": "cron",
    "timezone": "UTC",
    "on_gap": "auto",
    "on_fold": "auto",
    "overlap": "skip",
    "catch_up": "latest",
    "catch_up_limit": "100",
}
NEWCOMER = {
    **BLANK,
    "name": "weekday report",
    "task": "tests.tasks.effect",
    "kwargs": '{"name": "report"}',
    "expression": "30 2 * * 1-5",
    "timezone": "Europe/Berlin",
    "alert_after": "26h",
}


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


def page_of(schedule: Schedule) -> str:
    return f"{PAGES}{schedule.pk}/change/"


def fields_of(client: Client, schedule: Schedule) -> dict[str, Any]:
    """What a browser would send if nothing were changed on the page."""
    form = client.get(page_of(schedule)).context["adminform"].form
    sent: dict[str, Any] = {}
    for bound in form:
        value = bound.value()
        if bound.name in ("anchor", "at", "starts_at", "ends_at"):
            moments = bound.field.widget.decompress(value) if value else [None, None]
            sent |= {f"{bound.name}_{place}": str(part or "") for place, part in enumerate(moments)}
        else:
            sent[bound.name] = "" if value is None else value
    return sent


class TestAdd:
    def test_the_packages_own_tasks_are_not_offered(self, admin_client: Client) -> None:
        page = admin_client.get(f"{PAGES}add/").content.decode()
        assert 'value="tests.tasks.effect"' in page
        assert 'value="django_reliable_jobs.' not in page

    def test_a_newcomer_adds_a_weekday_schedule_and_sees_it_run(self, admin_client: Client) -> None:
        response = admin_client.post(f"{PAGES}add/", NEWCOMER, follow=True)
        schedule = Schedule.objects.get()
        assert response.redirect_chain == [(page_of(schedule), 302)]
        assert schedule.rule() == Cron("30 2 * * 1-5", timezone="Europe/Berlin", on_gap="after", on_fold="first")
        assert (schedule.overlap, schedule.alert_after, schedule.managed_by) == ("skip", timedelta(hours=26), "admin")
        assert schedule.next_run_at is not None
        [job] = tick(at=schedule.next_run_at)
        with at(schedule.next_run_at):
            run_jobs()
        text = admin_client.get(page_of(schedule)).content.decode()
        assert "succeeded" in text
        assert f"job {job.pk}" in text

    @pytest.mark.parametrize(
        ("changes", "field", "message"),
        [
            ({"expression": "61 2 * * *"}, "expression", "61 is out of range"),
            ({"expression": ""}, "expression", "fields"),
            ({"timezone": "Europe/Berln"}, "timezone", "did you mean &#x27;Europe/Berlin&#x27;"),
            ({"task": "os.system"}, "task", "Select a valid choice"),
            ({"kwargs": "{"}, "kwargs", "Enter a valid JSON"),
            ({"kwargs": '{"nam": "x"}'}, "kwargs", "did you mean &#x27;name&#x27;"),
            ({"kwargs": "[1]"}, "kwargs", "must be a dict"),
            ({"kind": "every", "interval": ""}, "interval", "an interval is needed"),
            ({"kind": "every", "interval": "soon"}, "interval", "is no span: write 90s"),
            ({"kind": "every", "interval": "0.5s"}, "interval", "less than one second"),
            ({"kind": "once"}, "at", "a moment is needed"),
            ({"kind": "once", "at_0": "2001-01-01", "at_1": "00:00"}, "at", "has passed"),
            ({"ends_at_0": "2001-01-01", "ends_at_1": "00:00"}, "ends_at", "It would never run"),
            ({"start_deadline": "1m", "jitter": "1m"}, "jitter", "shorter than start_deadline"),
            ({"queue_name": "a b"}, "queue_name", "printable characters"),
            ({"priority": "101"}, "priority", "-100 to 100"),
            ({"catch_up_limit": "0"}, "catch_up_limit", "from 1 to 1000"),
            ({"name": "taken"}, "name", "of this name already"),
            ({"name": ""}, "name", "required"),
        ],
    )
    def test_what_can_not_hold_is_said_at_its_field(
        self, admin_client: Client, changes: dict[str, str], field: str, message: str
    ) -> None:
        a_schedule(name="taken")
        response = admin_client.post(f"{PAGES}add/", {**NEWCOMER, **changes})
        assert response.status_code == 200
        assert message in str(response.context["adminform"].form.errors[field])
        assert Schedule.objects.count() == 1

    @pytest.mark.parametrize(
        ("changes", "recurrence"),
        [
            ({"kind": "every", "interval": "1h30m"}, Every(minutes=90)),
            (
                {"kind": "every", "interval": "2d", "anchor_0": "2026-01-01", "anchor_1": "06:00"},
                Every(days=2, anchor=datetime(2026, 1, 1, 6, tzinfo=UTC)),
            ),
            ({"kind": "once", "at_0": "2100-01-01", "at_1": "06:00"}, Once(at=datetime(2100, 1, 1, 6, tzinfo=UTC))),
        ],
    )
    def test_intervals_and_moments_too(
        self, admin_client: Client, changes: dict[str, str], recurrence: Every | Once
    ) -> None:
        admin_client.post(f"{PAGES}add/", {**NEWCOMER, **changes})
        assert Schedule.objects.get().rule() == recurrence


class TestChange:
    @pytest.mark.parametrize(
        "recurrence",
        [
            Cron("30 2 * * *", timezone="Europe/Berlin", on_gap="shift", on_fold="second"),
            Cron("@hourly"),
            Every(minutes=7, anchor=on(2, 3, 4)),
            Once(at=datetime(2100, 1, 1, tzinfo=UTC)),
        ],
    )
    def test_saved_without_a_change_nothing_changes(
        self, admin_client: Client, recurrence: Cron | Every | Once
    ) -> None:
        schedule = a_schedule(
            recurrence,
            kwargs={"x": [1, "ü"]},
            start_deadline=timedelta(minutes=90),
            starts_at=on(2),
            ends_at=datetime(2101, 1, 1, tzinfo=UTC),
            priority=-3,
            keep_failed=0,
        )
        before = Schedule.objects.values().get()
        response = admin_client.post(page_of(schedule), fields_of(admin_client, schedule))
        assert response.status_code == 302, response.context["adminform"].form.errors
        after = Schedule.objects.values().get()
        assert {**after, "changed_at": None} == {**before, "changed_at": None}

    @pytest.mark.parametrize("hour", [0, 1])
    def test_moments_that_the_form_can_not_tell_stay_while_nobody_touches_them(
        self, admin_client: Client, settings: Any, hour: int
    ) -> None:
        settings.TIME_ZONE = "Europe/Berlin"
        moment = datetime(2100, 10, 31, hour, 30, 0, 123_456, tzinfo=UTC)  # 02:30, the first or the second time
        schedule = a_schedule(Once(at=moment), ends_at=moment)
        sent = {**fields_of(admin_client, schedule), "priority": "7"}
        assert sent["at_1"] == "02:30:00"
        response = admin_client.post(page_of(schedule), sent)
        assert response.status_code == 302, response.context["adminform"].form.errors
        schedule.refresh_from_db()
        assert (schedule.priority, schedule.rule(), schedule.ends_at) == (7, Once(at=moment), moment)
        response = admin_client.post(page_of(schedule), {**sent, "at_1": "02:31:00"})
        assert "may be ambiguous" in str(response.context["adminform"].form.errors["at"])

    def test_a_schedule_of_a_renamed_task_shows_its_name_and_keeps_running(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        schedule = a_schedule()
        Schedule.objects.update(task="old.nothing")
        monkeypatch.setitem(registry._tasks, "old.nothing", registry.get("tests.tasks.nothing"))
        [job] = tick(at=on(2, 1))
        assert job.task == "tests.tasks.nothing"
        text = admin_client.get(page_of(schedule)).content.decode()
        assert '<option value="tests.tasks.nothing" selected>' in text and "not declared" not in text
        assert admin_client.post(page_of(schedule), fields_of(admin_client, schedule)).status_code == 302
        assert Schedule.objects.get().task == "tests.tasks.nothing"

    def test_tasks_are_offered_with_their_arguments(self, admin_client: Client) -> None:
        assert ">tests.tasks.effect(name)</option>" in admin_client.get(f"{PAGES}add/").content.decode()

    def test_a_new_rule_counts_from_now(self, admin_client: Client) -> None:
        schedule = a_schedule()
        with at(on(2, 5, 10)):
            sent = {**fields_of(admin_client, schedule), "expression": "*/30 * * * *"}
            assert admin_client.post(page_of(schedule), sent).status_code == 302
        schedule.refresh_from_db()
        assert schedule.next_run_at == on(2, 5, 30)
        assert ranges_of(schedule) == [(on(2, 1), on(2, 5), 5, "edited")]

    def test_a_schedule_whose_task_is_gone_is_shown_and_says_so_when_saved(self, admin_client: Client) -> None:
        schedule = a_schedule()
        Schedule.objects.update(task="gone.away")
        text = admin_client.get(page_of(schedule)).content.decode()
        assert "gone.away (not declared)" in text
        response = admin_client.post(page_of(schedule), fields_of(admin_client, schedule))
        assert "no task is declared under the name" in str(response.context["adminform"].form.errors["task"])

    def test_a_schedule_whose_zone_is_gone_is_shown_and_mended(self, admin_client: Client) -> None:
        schedule = a_schedule(Cron("0 * * * *", timezone="Europe/Berlin"))
        Schedule.objects.update(recurrence={**schedule.recurrence, "timezone": "Mars/Olympus"})
        tick(at=on(2, 1))
        assert "Mars/Olympus" in admin_client.get(page_of(schedule)).content.decode()
        assert b"broken:" in admin_client.get(PAGES).content
        sent = {**fields_of(admin_client, schedule), "timezone": "Europe/Berlin"}
        assert admin_client.post(page_of(schedule), sent).status_code == 302
        assert Schedule.objects.get().error == ""

    def test_name_and_task_of_a_declared_schedule_are_the_codes(self, admin_client: Client) -> None:
        with only_declared(("nightly", Cron("0 2 * * *"), {})):
            reconcile.sync("default")
        schedule = Schedule.objects.get()
        sent = {**fields_of(admin_client, schedule), "name": "mine", "task": "tests.tasks.nothing", "priority": "9"}
        assert admin_client.post(page_of(schedule), sent).status_code == 302
        schedule.refresh_from_db()
        assert (schedule.name, schedule.task, schedule.priority) == ("nightly", "tests.tasks.effect", 9)
        assert "priority (code: none)" in admin_client.get(page_of(schedule)).content.decode()
        assert admin_client.post(f"{PAGES}{schedule.pk}/delete/", {"post": "yes"}).status_code == 403

    def test_deleting_takes_the_slots_along(self, admin_client: Client) -> None:
        schedule = a_schedule()
        tick(at=on(2, 1))
        assert admin_client.post(f"{PAGES}{schedule.pk}/delete/", {"post": "yes"}).status_code == 302
        assert not Schedule.objects.exists()
        assert slots_of(schedule) == {}
        assert Job.objects.count() == 1
