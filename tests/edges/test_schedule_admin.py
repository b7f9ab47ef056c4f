"""Schedules in the admin: checked like code, shown before they are saved, changed by the engine alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_reliable_jobs.engine import reconcile, schedules
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.testing import at, run_jobs, tick
from tests.scheduled_tasks import only_declared
from tests.schedules import a_schedule, on, ranges_of, slots_of

pytestmark = pytest.mark.django_db

PAGES = "/admin/django_reliable_jobs/schedule/"
PACKAGE = Path(__file__).resolve().parent.parent.parent / "django_reliable_jobs"
MARKUP = "<script>alert('x')</script>&"

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


class TestActions:
    def act(self, client: Client, action: str, *chosen: Schedule) -> list[str]:
        """Do it to these; return what the page tells."""
        ids = [schedule.pk for schedule in chosen]
        response = client.post(PAGES, {"action": action, "_selected_action": ids}, follow=True)
        return [str(message) for message in response.context["messages"]]

    def test_pause_and_resume(self, admin_client: Client) -> None:
        one, two = a_schedule(name="one"), a_schedule(name="two")
        with at(on(2, 0, 30)):
            assert self.act(admin_client, "pause", one, two) == ["2 schedules are paused."]
            assert tick(at=on(2, 1)) == []
            assert "paused: paused in the admin" in admin_client.get(PAGES).content.decode()
        with at(on(2, 1, 30)):
            assert self.act(admin_client, "resume", one) == ["1 schedule goes on from now."]
        assert [job.schedule_id for job in tick(at=on(2, 2))] == [one.pk]
        assert slots_of(one) == {on(2, 1): "paused", on(2, 2): "job"}

    def test_run_now(self, admin_client: Client) -> None:
        schedule, broken = a_schedule(), a_schedule(name="broken")
        Schedule.objects.filter(pk=broken.pk).update(task="gone")
        told = self.act(admin_client, "run_now", schedule, broken)
        job = Job.objects.get()
        assert (job.schedule_id, job.slot) == (schedule.pk, None)
        assert f"hourly: job {job.pk} was made." in told
        assert any("broken: no task is declared" in each for each in told)

    def test_reset_to_the_code(self, admin_client: Client) -> None:
        with only_declared(("nightly", Cron("0 2 * * *"), {"priority": 1})):
            reconcile.sync("default")
        schedule = Schedule.objects.get()
        schedules.edit("default", schedule.pk, priority=9)
        assert self.act(admin_client, "reset_to_code", schedule) == ["nightly: priority"]
        assert Schedule.objects.get().priority == 1
        assert self.act(admin_client, "reset_to_code", a_schedule()) == [
            "the schedule 'hourly' is not declared in code"
        ]

    def test_many_are_deleted_at_once_but_not_what_the_code_declares(self, admin_client: Client) -> None:
        with only_declared(("nightly", Cron("0 2 * * *"), {})):
            reconcile.sync("default")
        declared, mine = Schedule.objects.get(), a_schedule()
        tick(at=on(2, 1))
        chosen = {"action": "delete_selected", "_selected_action": [declared.pk, mine.pk], "post": "yes"}
        assert b"nightly: declared in code" in admin_client.post(PAGES, chosen).content
        assert Schedule.objects.count() == 2
        admin_client.post(PAGES, {**chosen, "_selected_action": [mine.pk]})
        assert Schedule.objects.get() == declared
        assert slots_of(mine) == {}


class TestPreview:
    def ask(self, client: Client, moment: datetime, **changes: str) -> Any:
        with at(moment):
            return client.post(f"{PAGES}preview/", {**NEWCOMER, **changes}).json()

    def test_it_shows_ten_runs_in_the_zone_and_in_utc_and_what_a_clock_change_does(self, admin_client: Client) -> None:
        answer = self.ask(admin_client, datetime(2026, 3, 26, tzinfo=UTC), expression="30 2 * * *")
        assert answer["description"].startswith("At 02:30, every day (Europe/Berlin).")
        assert answer["timezone"] == "Europe/Berlin"
        assert len(answer["runs"]) == 10
        assert answer["runs"][0] == {"local": "Thu 2026-03-26 02:30:00 CET", "utc": "2026-03-26 01:30:00", "note": ""}
        note = "02:30 does not exist on 29 March 2026 in Europe/Berlin: will run at 03:00"
        assert answer["runs"][3] == {
            "local": "Sun 2026-03-29 03:00:00 CEST",
            "utc": "2026-03-29 01:00:00",
            "note": note,
        }
        assert answer["warnings"][0] == note
        assert answer["warnings"][1].startswith("02:30 happens twice on 25 October 2026")
        assert [run["note"] for run in answer["runs"]].count(note) == 1

    def test_an_expression_of_every_minute_is_told_in_short(self, admin_client: Client) -> None:
        answer = self.ask(admin_client, datetime(2026, 3, 26, tzinfo=UTC), expression="* * * * *")
        assert len(answer["warnings"]) < 15
        assert any("57 more" in each for each in answer["warnings"])

    def test_a_mistake_is_told(self, admin_client: Client) -> None:
        answer = self.ask(admin_client, on(2), expression="61 * * * *")
        assert answer == {
            "errors": [
                "Cron expression: cron expression '61 * * * *': minute field '61': 61 is out of range: use 0 to 59"
            ]
        }

    def test_it_needs_no_other_field(self, admin_client: Client) -> None:
        answer = self.ask(admin_client, on(2), name="", task="", kwargs="{", kind="every", interval="90m")
        assert answer["runs"][0]["utc"] == "2026-03-02 01:30:00"

    def test_it_needs_permission(self, client: Client) -> None:
        user = User.objects.create_user("ada", is_staff=True)
        client.force_login(user)
        assert client.post(f"{PAGES}preview/", NEWCOMER).status_code == 403
        user.user_permissions.add(Permission.objects.get(codename="add_schedule"))
        assert client.post(f"{PAGES}preview/", NEWCOMER).status_code == 200

    def test_without_a_script_the_button_shows_it_and_saves_nothing(self, admin_client: Client) -> None:
        with at(datetime(2026, 3, 26, tzinfo=UTC)):
            response = admin_client.post(
                f"{PAGES}add/", {**NEWCOMER, "expression": "30 2 * * *", "_preview": "Preview"}
            )
        text = response.content.decode()
        assert "Sun 2026-03-29 03:00:00 CEST" in text
        assert "Please correct" not in text
        assert 'value="weekday report"' in text
        assert not Schedule.objects.exists()

    def test_a_saved_schedule_shows_it(self, admin_client: Client) -> None:
        schedule = a_schedule(Cron("30 2 * * *", timezone="Europe/Berlin"))
        with at(datetime(2026, 3, 26, tzinfo=UTC)):
            assert "Sun 2026-03-29 03:00:00 CEST" in admin_client.get(page_of(schedule)).content.decode()

    def test_the_pages_hold_no_inline_script_or_style(self, admin_client: Client) -> None:
        text = admin_client.get(f"{PAGES}add/").content.decode()
        ours = (PACKAGE / "templates/admin/django_reliable_jobs/schedule").glob("*.html")
        assert all(word not in each.read_text() for each in ours for word in ("<script", "style=", "onclick"))
        assert "django_reliable_jobs/schedule.js" in text
        assert "innerHTML" not in (PACKAGE / "static/django_reliable_jobs/schedule.js").read_text()


class TestList:
    def test_it_shows_when_each_runs_in_both_zones_and_what_became_of_the_last_run(self, admin_client: Client) -> None:
        a_schedule(Cron("30 2 * * *", timezone="Europe/Berlin"), name="nightly")
        [job] = tick(at=on(2, 1, 30))
        Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=on(2, 1, 31))
        text = admin_client.get(PAGES).content.decode()
        for shown in ("At 02:30, every day (Europe/Berlin).", "2026-03-03 02:30:00 CET", "2026-03-03 01:30:00 UTC"):
            assert shown in text
        assert f'job/{job.pk}/change/">dead</a>, 2026-03-02 01:31:00 UTC' in text

    def test_it_takes_as_many_queries_for_many_as_for_one(
        self, admin_client: Client, django_assert_num_queries: Callable[..., Any]
    ) -> None:
        for number in range(20):
            a_schedule(name=f"s{number}")
            if number in (0, 19):
                tick(at=on(2, 1))
                with django_assert_num_queries(5):  # session, user, count, schedules, last jobs
                    admin_client.get(PAGES)

    def test_the_next_clock_change_is_a_filter(self, admin_client: Client) -> None:
        touched = a_schedule(Cron("30 2 * * *", timezone="Europe/Berlin"), name="touched")
        a_schedule(Cron("30 4 * * *", timezone="Europe/Berlin"), name="later")
        a_schedule(Cron("30 2 * * 1-5", timezone="Europe/Berlin"), name="not on Sundays")
        a_schedule(Cron("30 2 * * *"), name="UTC")
        a_schedule(Every(minutes=1), name="every")
        sydney = a_schedule(Cron("30 2 * * *", timezone="Australia/Sydney"), name="Sydney")  # back on 5 April
        with at(on(26)):
            response = admin_client.get(f"{PAGES}?clock_change=next")
        assert list(response.context["cl"].result_list) == [sydney, touched]

    def test_who_may_view_sees_and_may_not_change(self, client: Client) -> None:
        schedule = a_schedule(kwargs={"x": MARKUP})
        user = User.objects.create_user("ada", is_staff=True)
        client.force_login(user)
        assert client.get(PAGES).status_code == 403
        user.user_permissions.add(Permission.objects.get(codename="view_schedule"))
        text = client.get(page_of(schedule)).content.decode()
        assert "Every hour" in text or "every hour" in text
        assert client.post(page_of(schedule), NEWCOMER).status_code == 403
        client.post(PAGES, {"action": "run_now", "_selected_action": [schedule.pk]})
        assert not Job.objects.exists()

    def test_markup_is_shown_and_not_obeyed(self, admin_client: Client) -> None:
        schedule = a_schedule(name=MARKUP, kwargs={"x": MARKUP})
        Schedule.objects.update(error=MARKUP, error_at=on(2), retry_at=on(2))
        Schedule.objects.update(task=MARKUP, queue_name=MARKUP)
        for page in (PAGES, page_of(schedule)):
            text = admin_client.get(page).content.decode()
            assert "<script>alert" not in text
            assert "&lt;script&gt;alert(" in text
