"""Schedules in the admin: checked like code, shown before they are saved, changed by the engine alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils.html import strip_tags

from django_reliable_jobs.engine import reconcile, schedules
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.recurrence import Cron, Every
from django_reliable_jobs.testing import at, tick
from tests.edges.test_schedule_admin_form import NEWCOMER, PAGES, page_of
from tests.scheduled_tasks import only_declared
from tests.schedules import a_schedule, on, slots_of

pytestmark = pytest.mark.django_db

PACKAGE = Path(__file__).resolve().parent.parent.parent / "django_reliable_jobs"
MARKUP = "<script>alert('x')</script>&"


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


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

    def test_who_may_pause_may_do_nothing_else(self, client: Client) -> None:
        schedule = a_schedule()
        user = User.objects.create_user("clerk", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_schedule"))
        client.force_login(user)
        act = f"{PAGES}{schedule.pk}/act/"
        assert client.post(act, {"act": "pause"}).status_code == 403
        user.user_permissions.add(Permission.objects.get(codename="pause_schedule"))
        assert client.post(act, {"act": "run_now"}).status_code == 403
        assert client.post(act, {"act": "pause"}).status_code == 302
        assert Schedule.objects.get().paused_at is not None
        page = client.get(page_of(schedule)).content.decode()
        assert 'value="resume"' in page and 'value="run_now"' not in page
        assert not Job.objects.exists()

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

    def test_what_the_code_has_dropped_may_be_deleted(self, admin_client: Client) -> None:
        with only_declared(("nightly", Cron("0 2 * * *"), {}), ("weekly", Cron("0 2 * * 1"), {})):
            reconcile.sync("default")
        nightly, weekly = Schedule.objects.get(name="nightly"), Schedule.objects.get(name="weekly")
        chosen = {"action": "delete_selected", "_selected_action": [nightly.pk, weekly.pk], "post": "yes"}
        with only_declared(("weekly", Cron("0 2 * * 1"), {})):
            reconcile.sync("default")
            assert b"weekly: declared in code" in admin_client.post(PAGES, chosen).content
            assert admin_client.post(f"{PAGES}{weekly.pk}/delete/", {"post": "yes"}).status_code == 403
        with only_declared(("nightly", Cron("0 2 * * *"), {})):  # the site is of a release that declares it
            assert admin_client.post(f"{PAGES}{nightly.pk}/delete/", {"post": "yes"}).status_code == 403
        admin_client.post(PAGES, {**chosen, "_selected_action": [nightly.pk]})
        assert Schedule.objects.get() == weekly


class TestPage:
    def act(self, client: Client, schedule: Schedule, **sent: str) -> list[str]:
        """Press a button; return what the page tells then."""
        response = client.post(f"{PAGES}{schedule.pk}/act/", sent, follow=True)
        assert response.redirect_chain == [(page_of(schedule), 302)]
        return [str(message) for message in response.context["messages"]]

    def test_its_buttons_pause_resume_and_run_now_and_the_history_tells_who_did(self, admin_client: Client) -> None:
        schedule = a_schedule()
        with at(on(2, 0, 30)):
            assert self.act(admin_client, schedule, act="pause", span="2h") == [
                "1 schedule is paused until 2026-03-02 02:30:00 UTC."
            ]
            text = admin_client.get(page_of(schedule)).content.decode()
            assert 'value="resume"' in text and 'value="pause"' not in text
            assert "paused until 2026-03-02 02:30:00 UTC: paused in the admin" in text
        assert tick(at=on(2, 2)) == []
        assert [job.slot for job in tick(at=on(2, 3))] == [on(2, 3)], "it resumes by itself"
        assert self.act(admin_client, schedule, act="pause", span=" ") == ["1 schedule is paused."]
        assert self.act(admin_client, schedule, act="resume") == ["1 schedule goes on from now."]
        [told] = self.act(admin_client, schedule, act="run_now")
        job = Job.objects.latest("pk")
        assert told == f"hourly: job {job.pk} was made."
        assert [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")] == [
            "paused until 2026-03-02 02:30:00 UTC",
            "paused",
            "resumed",
            f"run now: job {job.pk}",
        ]

    @pytest.mark.parametrize("span", ["soon", "-1h", "99999d", "9" * 400 + "s"])
    def test_what_is_no_span_is_told_and_pauses_nothing(self, admin_client: Client, span: str) -> None:
        schedule = a_schedule()
        [told] = self.act(admin_client, schedule, act="pause", span=span)
        assert "is no span: write 90s" in told or "at most ten years" in told
        schedule.refresh_from_db()
        assert schedule.paused_at is None

    def test_it_needs_permission_a_button_and_a_schedule(self, admin_client: Client, client: Client) -> None:
        schedule = a_schedule()
        url = f"{PAGES}{schedule.pk}/act/"
        assert admin_client.get(url).status_code == 405
        assert admin_client.post(url, {"act": "delete_selected"}).status_code == 404
        assert admin_client.post(url, {"act": "reset_to_code"}).status_code == 404
        assert admin_client.post(f"{PAGES}{10**9}/act/", {"act": "run_now"}).status_code == 404
        assert admin_client.post(f"{PAGES}x/act/", {"act": "run_now"}).status_code == 404
        user = User.objects.create_user("ada", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_schedule"))
        viewer = Client()
        viewer.force_login(user)
        assert viewer.post(url, {"act": "run_now"}).status_code == 403
        assert 'name="act"' not in viewer.get(page_of(schedule)).content.decode()
        assert not Job.objects.exists()

    def test_its_last_slots_tell_how_their_jobs_ended(self, admin_client: Client) -> None:
        schedule = a_schedule(overlap="allow")
        [first], [second] = tick(at=on(2, 1)), tick(at=on(2, 2))
        tick(at=on(2, 5))
        Job.objects.filter(pk=first.pk).delete()
        Job.objects.filter(pk=second.pk).update(status="DEAD", finished_at=on(2, 3))
        text = admin_client.get(page_of(schedule)).content.decode()
        assert f"job {first.pk}, deleted since" in text
        assert f'<a href="/admin/django_reliable_jobs/job/{second.pk}/change/">job {second.pk}</a>: dead' in text
        assert "missed, and not caught up" in text

    def test_the_page_of_a_job_names_its_schedule(self, admin_client: Client) -> None:
        schedule = a_schedule(name="<hourly>")
        [job] = tick(at=on(2, 1))
        page = f"/admin/django_reliable_jobs/job/{job.pk}/change/"
        text = admin_client.get(page).content.decode()
        assert f'<a href="{page_of(schedule)}">&lt;hourly&gt;</a>, slot 2026-03-02 01:00:00 UTC' in text
        schedules.delete("default", [schedule.pk])
        assert f"{schedule.pk}, deleted since" in admin_client.get(page).content.decode()


class TestPreview:
    def ask(self, client: Client, moment: datetime, **changes: str) -> Any:
        with at(moment):
            return client.post(f"{PAGES}preview/", {**NEWCOMER, **changes}).json()

    def test_it_shows_ten_runs_in_the_zone_and_in_utc_and_what_a_clock_change_does(self, admin_client: Client) -> None:
        answer = self.ask(admin_client, datetime(2026, 3, 26, tzinfo=UTC), expression="30 2 * * *")
        assert answer["description"].startswith("At 02:30, every day (Europe/Berlin).")
        assert answer["timezone"] == "Europe/Berlin"
        assert len(answer["runs"]) == 10
        assert answer["runs"][0] == {
            "local": "Thu 2026-03-26 02:30:00 CET",
            "utc": "Thu 2026-03-26 01:30:00",
            "note": "",
        }
        note = "02:30 does not exist on 29 March 2026 in Europe/Berlin: will run at 03:00"
        assert answer["runs"][3] == {
            "local": "Sun 2026-03-29 03:00:00 CEST",
            "utc": "Sun 2026-03-29 01:00:00",
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
        assert answer["runs"][0]["utc"] == "Mon 2026-03-02 01:30:00"

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

    def test_in_utc_moments_are_told_once_and_clock_changes_only_if_there_are_some(self, admin_client: Client) -> None:
        text = admin_client.get(page_of(a_schedule(Every(hours=1)))).content.decode()
        table = text[text.index("schedule-table") :].split("</table>")[0]
        assert table.count("<th>") == 1 and "<th>UTC</th>" in table and "Clock change" not in table

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
        page = admin_client.get(PAGES).content.decode()
        text = strip_tags(page)
        for shown in ("At 02:30, every day (Europe/Berlin)", "2026-03-03 02:30:00 CET", "2026-03-03 01:30:00 UTC"):
            assert shown in text
        assert f'job/{job.pk}/change/">dead</a>' in page
        assert "2026-03-02 01:31:00 UTC" in text

    def test_an_interval_is_told_in_short_and_the_task_stands_below_the_name(self, admin_client: Client) -> None:
        schedule = a_schedule(Every(seconds=5), name="quick")
        [row] = admin_client.get(PAGES).content.decode().split('<tr><td class="action-checkbox">')[1:]
        assert 'class="field-runs_in_short">Every 5 seconds</td>' in row
        assert schedule.task == "tests.tasks.nothing" and "tests.<wbr>tasks.<wbr>nothing<wbr></div>" in row

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
