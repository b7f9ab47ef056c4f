"""Limits and queues in the admin: what the code says, what an operator says, what runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from django_reliable_jobs.engine import inspection, limits, queues
from django_reliable_jobs.models import Job, Limit, Queue
from tests import limited_tasks, tasks
from tests.states import a_worker

pytestmark = pytest.mark.django_db

LIMITS = "/admin/django_reliable_jobs/limit/"
QUEUES = "/admin/django_reliable_jobs/queue/"
MARKUP = "<script>alert('x')</script>&"


@pytest.fixture(autouse=True)
def declared_limits(db: None) -> None:
    limits.declare("default")


def limit_of(name: str) -> Limit:
    return Limit.objects.get(name=name)


def page_of(limit: Limit) -> str:
    return f"{LIMITS}{limit.pk}/change/"


def a_holder(key: str) -> Job:
    row = {"status": "RUNNING", "token": 1, "worker_id": 1, "claims": 1, "started_at": Now()}
    return Job.objects.create(task="tests.tasks.nothing", concurrency_key=key, **row)


def a_user_who_may(client: Client, *codenames: str) -> None:
    user = User.objects.create_user("ada", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    client.force_login(user)


class TestLimits:
    def test_the_list_shows_both_values_and_what_runs_and_waits(self, admin_client: Client) -> None:
        a_holder("crm")
        limited_tasks.crm_read.enqueue()
        limits.override("default", "concurrency", "crm", 7)
        text = admin_client.get(f"{LIMITS}?q=crm").content.decode()
        row = text[text.index('<tr><td class="action-checkbox">') :].split("</tr>")[0]
        assert strip_tags(row.replace("<td", " <td").replace("<th", " <th")).split() == [
            *("crm", "jobs", "at", "once", "2", "7", "1", "1")
        ]

    def test_the_list_takes_as_many_queries_for_many_as_for_one(
        self, admin_client: Client, django_assert_num_queries: Any
    ) -> None:
        assert Limit.objects.count() > 5
        for query in ("", "?q=crm"):
            with django_assert_num_queries(5):  # session, user, count, limits, what runs and waits
                admin_client.get(f"{LIMITS}{query}")

    def test_a_page_names_the_jobs_that_have_a_place(self, admin_client: Client) -> None:
        first, second, other = a_holder("crm"), a_holder("crm:customer=<1>"), a_holder("crms")
        text = admin_client.get(page_of(limit_of("crm"))).content.decode()
        assert f"/job/{first.pk}/change/" in text and f"/job/{second.pk}/change/" in text
        assert f"/job/{other.pk}/change/" not in text
        assert "(crm:customer=&lt;1&gt;, since" in text

    def test_a_value_is_in_force_until_it_is_left_empty_and_the_history_tells(self, admin_client: Client) -> None:
        limit = limit_of("crm")
        assert admin_client.post(page_of(limit), {"instead": "5"}).status_code == 302
        limit.refresh_from_db()
        assert (limit.value, limit.override) == ("2", "5")
        assert 'value="5"' in admin_client.get(page_of(limit)).content.decode()
        assert admin_client.post(page_of(limit), {"instead": "0"}).status_code == 302
        limit.refresh_from_db()
        assert limit.override == "0"
        assert admin_client.post(page_of(limit), {"instead": ""}).status_code == 302
        limit.refresh_from_db()
        assert limit.override is None
        assert LogEntry.objects.count() == 3

    def test_a_rate_has_a_burst(self, admin_client: Client) -> None:
        limit = Limit.objects.get(kind="rate", name="tests.limited_tasks.ten_a_second")
        assert admin_client.post(page_of(limit), {"instead": "600/m", "burst": "20"}).status_code == 302
        limit.refresh_from_db()
        assert limit.override == "600/m, burst 20"
        text = admin_client.get(page_of(limit)).content.decode()
        assert 'value="600/m"' in text and 'value="20"' in text
        assert admin_client.post(page_of(limit), {"instead": "0/s", "burst": ""}).status_code == 302
        limit.refresh_from_db()
        assert limit.override == "0/s"

    @pytest.mark.parametrize(
        ("name", "sent", "field"),
        [
            ("crm", {"instead": "10/s"}, "instead"),
            ("crm", {"instead": "-1"}, "instead"),
            ("crm", {"instead": "1000001"}, "instead"),
            ("crm", {"instead": "٣"}, "instead"),
            ("crm", {"instead": "2", "burst": "3"}, None),
            ("tests.limited_tasks.ten_a_second", {"instead": "10"}, "instead"),
            ("tests.limited_tasks.ten_a_second", {"instead": "10 per second"}, "instead"),
            ("tests.limited_tasks.ten_a_second", {"instead": "10/s", "burst": "0"}, "burst"),
            ("tests.limited_tasks.ten_a_second", {"instead": "", "burst": "3"}, "burst"),
        ],
    )
    def test_what_is_no_value_of_its_kind_is_refused_at_its_field(
        self, admin_client: Client, name: str, sent: dict[str, str], field: str | None
    ) -> None:
        limit = limit_of(name)
        response = admin_client.post(page_of(limit), sent)
        limit.refresh_from_db()
        if field is None:  # a burst that the page does not offer
            assert limit.override == "2"
            return
        assert set(response.context["adminform"].form.errors) == {field}
        assert limit.override is None

    def test_many_are_reset_at_once(self, admin_client: Client) -> None:
        limits.override("default", "concurrency", "crm", 7)
        ids = list(Limit.objects.values_list("pk", flat=True))
        sent = {"action": "reset_to_code", "_selected_action": ids}
        response = admin_client.post(LIMITS, sent, follow=True)
        assert [str(each) for each in response.context["messages"]] == ["1 limit is as the code says."]
        assert limit_of("crm").override is None
        assert LogEntry.objects.get().get_change_message() == "reset to the code: 2"

    def test_it_needs_permission(self, client: Client) -> None:
        limit = limit_of("crm")
        a_user_who_may(client, "view_limit")
        assert client.post(page_of(limit), {"instead": "5"}).status_code == 403
        assert 'name="instead"' not in client.get(page_of(limit)).content.decode()
        client.post(LIMITS, {"action": "reset_to_code", "_selected_action": [limit.pk]})
        assert client.get(QUEUES).status_code == 403
        limit.refresh_from_db()
        assert limit.override is None

    def test_nobody_adds_one_or_deletes_what_the_code_declares(self, admin_client: Client) -> None:
        assert admin_client.get(f"{LIMITS}add/").status_code == 403
        assert admin_client.post(f"{LIMITS}{limit_of('crm').pk}/delete/", {"post": "yes"}).status_code == 403

    def test_what_is_left_over_goes_by_its_page_or_with_others_for_who_may(self, client: Client) -> None:
        old = Limit.objects.create(kind="concurrency", name="old", allowed=3)
        older = Limit.objects.create(kind="rate", name="older", allowed=3, period=1, burst=3)
        a_user_who_may(client, "view_limit", "change_limit")
        assert client.post(f"{LIMITS}{old.pk}/delete/", {"post": "yes"}).status_code == 403
        User.objects.all().delete()
        a_user_who_may(client, "view_limit", "delete_limit")
        assert f"{LIMITS}{old.pk}/delete/" in client.get(page_of(old)).content.decode()
        assert f"{LIMITS}{limit_of('crm').pk}/delete/" not in client.get(page_of(limit_of("crm"))).content.decode()
        client.post(f"{LIMITS}{old.pk}/delete/", {"post": "yes"})
        assert not Limit.objects.filter(name="old").exists()
        wanted = {"action": "delete_selected", "post": "yes"}
        client.post(LIMITS, {**wanted, "_selected_action": [older.pk, limit_of("crm").pk]})
        assert Limit.objects.filter(name__in=("older", "crm")).count() == 2  # one of them may not go
        client.post(LIMITS, {**wanted, "_selected_action": [older.pk]})
        assert not Limit.objects.filter(name="older").exists()

    @pytest.mark.parametrize("status", ["SCHEDULED", "READY", "RUNNING", "WAITING"])
    def test_nothing_goes_that_a_job_counts_for_or_an_operator_speaks_of(
        self, admin_client: Client, status: str
    ) -> None:
        rate = Limit.objects.create(kind="rate", name="old", allowed=3, period=1, burst=3)
        same_name = Limit.objects.create(kind="concurrency", name="old", allowed=3)
        said = Limit.objects.create(kind="concurrency", name="said", allowed=3, override_allowed=0)
        row: dict[str, Any] = {"status": status, "rate_key": "old:customer_id=1"}
        if status == "RUNNING":
            row |= {"token": 1, "worker_id": 1, "claims": 1, "started_at": Now()}
        job = Job.objects.create(task="tests.tasks.nothing", **row)
        for limit, answer in ((rate, 403), (same_name, 302), (said, 403)):
            assert admin_client.post(f"{LIMITS}{limit.pk}/delete/", {"post": "yes"}).status_code == answer
            assert not limits.forget("default", limit.kind, limit.name)
        assert set(Limit.objects.filter(name__in=("old", "said"))) == {rate, said}
        job.delete()
        assert limits.forget("default", "rate", "old")


class TestQueues:
    def rows(self, client: Client) -> dict[str, str]:
        """What each row of the list says, by the name of its queue."""
        text = client.get(QUEUES).content.decode()
        rows = text[text.index("<tbody>") :].split("<tr>")[1:]
        found = [strip_tags(row.replace("<td", " <td").split("<form")[0]).split() for row in rows]
        return {name: " ".join(said) for name, *said in found}

    def test_queues_in_use_are_shown_without_a_row(self, admin_client: Client) -> None:
        assert not Queue.objects.exists()
        a_worker(serves=["default", "idle"])
        tasks.nothing.enqueue()
        tasks.nothing.using(queue_name="mail", run_after=timedelta(hours=1)).enqueue()
        rows = self.rows(admin_client)
        assert rows["default"].startswith("served 1 0 0 0:00:0")
        assert rows["mail"] == "no worker serves it 0 0 1 - 0 -"
        assert rows["idle"] == "served 0 0 0 - 1 -"

    def test_it_takes_a_fixed_number_of_queries(self, admin_client: Client, django_assert_num_queries: Any) -> None:
        for name in ("a", "b", "c"):
            tasks.nothing.using(queue_name=name).enqueue()
            with django_assert_num_queries(4):  # session, user, the pause of all, queues
                admin_client.get(QUEUES)

    def act(self, client: Client, name: str, act: str, span: str = "") -> list[str]:
        response = client.post(f"{QUEUES}act/", {"name": name, "act": act, "span": span}, follow=True)
        assert response.redirect_chain == [(QUEUES, 302)]
        return [str(message) for message in response.context["messages"]]

    def test_its_buttons_pause_and_resume_a_queue(self, admin_client: Client) -> None:
        tasks.nothing.enqueue()
        self.act(admin_client, "default", "pause", "2h")
        row = Queue.objects.get()
        assert row.name == "default" and row.resume_at is not None
        assert abs(row.resume_at - timezone.now() - timedelta(hours=2)) < timedelta(minutes=1)
        assert self.rows(admin_client)["default"].startswith("paused since 2")
        self.act(admin_client, "default", "resume")
        assert self.rows(admin_client)["default"].startswith("no worker serves it")

    def test_it_says_what_it_did_and_the_history_of_the_queue_who_did_it(self, admin_client: Client) -> None:
        assert self.act(admin_client, "mail", "resume") == [], "it was not paused"
        assert self.act(admin_client, "mail", "pause") == ["mail: The queue is paused."]
        assert self.act(admin_client, "mail", "pause", "2h")[0].startswith("mail: The queue is paused, until 2")
        assert self.act(admin_client, "mail", "resume") == ["mail: The queue goes on."]
        assert self.act(admin_client, queues.ALL, "pause") == ["All queues are paused."]
        assert self.act(admin_client, queues.ALL, "resume") == ["The pause of all queues is over."]
        history = admin_client.get(f"{QUEUES}mail/history/").content.decode()
        assert history.count("The queue is paused") == 2 and history.count("The queue goes on.") == 1
        assert LogEntry.objects.count() == 5

    def test_everything_is_paused_and_resumed(self, admin_client: Client) -> None:
        self.act(admin_client, queues.ALL, "pause")
        assert inspection.pause_of_all("default") is not None
        assert "All queues are paused since 2" in admin_client.get(QUEUES).content.decode()
        self.act(admin_client, queues.ALL, "resume")
        assert inspection.pause_of_all("default") is None

    def test_what_makes_no_sense_changes_nothing(self, admin_client: Client) -> None:
        assert "is no span" in self.act(admin_client, "default", "pause", "soon")[0]
        for name in ("", "a b", "x" * 65, "\x00"):
            assert admin_client.post(f"{QUEUES}act/", {"name": name, "act": "pause"}).status_code == 404
        assert admin_client.post(f"{QUEUES}act/", {"name": "default", "act": "delete"}).status_code == 404
        assert admin_client.get(f"{QUEUES}act/").status_code == 405
        assert not Queue.objects.exists()

    def test_it_needs_permission(self, client: Client) -> None:
        a_user_who_may(client, "view_queue")
        tasks.nothing.enqueue()
        assert 'name="act"' not in client.get(QUEUES).content.decode()
        assert client.post(f"{QUEUES}act/", {"name": "default", "act": "pause"}).status_code == 403
        assert not Queue.objects.exists()

    def test_markup_is_shown_and_not_obeyed(self, admin_client: Client) -> None:
        Queue.objects.create(name=MARKUP, paused_at=Now())
        Limit.objects.create(kind="concurrency", name=MARKUP, allowed=1)
        for page in (QUEUES, LIMITS, page_of(limit_of(MARKUP))):
            text = admin_client.get(page).content.decode()
            assert "<script>alert" not in text and "&lt;script&gt;alert(" in text
