"""Acts on jobs: each with its own permission, after a question, by POST alone, told and logged."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import OperationalError
from django.test import Client
from django.urls import reverse
from django.utils.translation import override

from django_reliable_jobs.admin import job_actions, job_acts
from django_reliable_jobs.admin.words import Count
from django_reliable_jobs.engine import lifecycle
from django_reliable_jobs.models import CancelRequest, Job
from django_reliable_jobs.testing import run_jobs
from tests import step_tasks, tasks
from tests.edges.test_admin import PAGES, page_of
from tests.factories import DeadJobFactory
from tests.states import a_dead_job, a_finished_job, a_running_job, status_of

pytestmark = pytest.mark.django_db

JOBS = f"{PAGES}job/"
PERMISSIONS = {
    "retry": "retry_job",
    "retry_from_start": "retry_job",
    "retry_undo": "retry_job",
    "cancel": "cancel_job",
    "move_queue": "move_job",
    "change_priority": "move_job",
    "delete_jobs": "delete_job",
}
ENTERED: dict[str, dict[str, Any]] = {"move_queue": {"queue_name": "urgent"}, "change_priority": {"priority": 7}}


def act(client: Client, action: str, *jobs: Job, query: str = "", **entered: Any) -> list[str]:
    """Do it to these, or to all that match the list; return what is told."""
    chosen = {"_selected_action": [job.pk for job in jobs]} if jobs else {"select_across": "1", "_selected_action": [0]}
    data = {"action": action, "index": 0, "confirmed": "yes", **chosen, **ENTERED.get(action, {}), **entered}
    response = client.post(JOBS + query, data, follow=True)
    assert response.status_code == 200
    return [str(message) for message in response.context["messages"]]


class TestQuestion:
    @pytest.mark.parametrize(
        ("language", "one", "more"),
        [("en", "Retry 1 job?", "Retry 1,001 jobs?"), ("de", "1 Job wiederholen?", "1.001 Jobs wiederholen?")],
    )
    def test_it_counts_one_as_one(self, language: str, one: str, more: str) -> None:
        with override(language):
            asked = [job_acts.ACTS["retry"].question % Count(each) for each in (1, 1001)]
        assert asked == [one, more]

    def test_a_page_asks_about_one_job_as_one(self, admin_client: Client) -> None:
        data = {"action": "retry", "index": 0, "_selected_action": [a_dead_job().pk]}
        assert "Retry 1 job?" in admin_client.post(JOBS, data).content.decode()

    @pytest.mark.parametrize("action", PERMISSIONS)
    def test_nothing_happens_before_a_yes(self, admin_client: Client, action: str) -> None:
        before = [a_dead_job(), tasks.nothing.enqueue()]
        rows = list(Job.objects.order_by("pk").values())
        response = admin_client.post(JOBS, {"action": action, "_selected_action": [job.pk for job in before]})
        assert response.status_code == 200
        text = response.content.decode()
        assert "2 jobs" in text and str(before[0]) in text and 'name="confirmed"' in text
        assert list(Job.objects.order_by("pk").values()) == rows
        assert not LogEntry.objects.exists()

    def test_it_says_about_how_many_match(self, admin_client: Client) -> None:
        tasks.nothing.enqueue_many([{}] * 3)
        data = {"action": "cancel", "select_across": "1", "_selected_action": [0]}
        page = admin_client.post(JOBS, data).content.decode()
        assert "All that match the list and are in a state for it: about" in page

    @pytest.mark.parametrize(
        ("action", "entered"),
        [
            ("move_queue", {"queue_name": ""}),
            ("move_queue", {"queue_name": "no good*"}),
            ("change_priority", {"priority": 101}),
            ("retry", {"spread": "soon"}),
        ],
    )
    def test_what_can_not_hold_is_asked_again(self, admin_client: Client, action: str, entered: dict[str, Any]) -> None:
        job = tasks.nothing.enqueue()
        before = Job.objects.values().get()
        data = {"action": action, "_selected_action": [job.pk], "confirmed": "yes", **entered}
        response = admin_client.post(JOBS, data)
        assert response.status_code == 200
        assert response.context["form"].errors
        assert Job.objects.values().get() == before

    def test_it_says_if_what_has_succeeded_would_run_once_more(self, admin_client: Client) -> None:
        finished, dead = a_finished_job(), a_dead_job()
        for chosen, warns in (([finished, dead], True), ([dead], False)):
            data = {"action": "retry", "index": 0, "_selected_action": [job.pk for job in chosen]}
            assert ("they run once more" in admin_client.post(JOBS, data).content.decode()) == warns
        for query, warns in (("", True), ("?status=DEAD", False)):
            data = {"action": "retry", "index": 0, "_selected_action": 0, "select_across": "1"}
            assert ("they run once more" in admin_client.post(JOBS + query, data).content.decode()) == warns


class TestActs:
    def test_retry(self, admin_client: Client) -> None:
        dead, ready = a_dead_job(), tasks.nothing.enqueue()
        told = act(admin_client, "retry", dead, ready)
        assert told == ["1 job is tried again. 1 had moved on, or can't be changed in this way."]
        assert status_of(dead) == "READY"

    def test_retry_spread_over_time(self, admin_client: Client) -> None:
        dead = [DeadJobFactory() for _ in range(5)]
        assert act(admin_client, "retry", *dead, spread="2h") == ["5 jobs are tried again."]
        due = sorted(Job.objects.filter(status="SCHEDULED").values_list("run_after", flat=True))
        assert len(set(due)) == 5
        assert 0 < (due[-1] - due[0]).total_seconds() < 7200

    def test_retry_from_the_start(self, admin_client: Client) -> None:
        dead = a_dead_job()
        act(admin_client, "retry", dead, from_start="on")
        dead.refresh_from_db()
        assert dead.run == 2

    def test_retry_from_the_start_has_a_button_of_its_own_and_leaves_live_jobs(self, admin_client: Client) -> None:
        dead, ready = a_dead_job(), tasks.nothing.enqueue()
        told = act(admin_client, "retry_from_start", dead, ready)
        assert told == ["1 job is tried again. 1 had moved on, or can't be changed in this way."]
        dead.refresh_from_db()
        assert (dead.status, dead.run) == ("READY", 2)
        assert LogEntry.objects.get().change_message == "Retry from the start"

    def test_retry_alone_stays_in_the_run(self, admin_client: Client) -> None:
        dead = a_dead_job()
        act(admin_client, "retry", dead)
        dead.refresh_from_db()
        assert (dead.status, dead.run) == ("READY", 1)

    def test_a_live_duplicate_is_told(self, admin_client: Client) -> None:
        dead = tasks.unique.enqueue("a")
        act(admin_client, "cancel", dead)
        tasks.unique.enqueue("a")
        assert "a live job has its unique key" in act(admin_client, "retry", dead)[0]

    def test_cancel_what_waits_and_ask_what_runs(self, admin_client: Client) -> None:
        running, ready = a_running_job(), tasks.nothing.enqueue()
        told = act(admin_client, "cancel", running, ready, reason="not needed")
        assert told == ["1 job was cancelled. 1 runs, and ends at its next safe point."]
        ready.refresh_from_db()
        assert (ready.status, ready.reason) == ("CANCELLED", "not needed")
        assert CancelRequest.objects.get().job_id == running.pk
        assert "It was asked to end (not needed)" in admin_client.get(page_of(running)).content.decode()

    @pytest.mark.parametrize(
        ("entered", "told", "statuses"),
        [
            ({}, "1 job was cancelled.", {"CANCELLED", "WAITING"}),
            (
                {"children": "on"},
                "1 job was cancelled. 1 job that they had started ends with them.",
                {"CANCELLED"},
            ),
        ],
        ids=["alone", "with its children"],
    )
    def test_cancel_reaches_children_if_asked(
        self, admin_client: Client, entered: dict[str, str], told: str, statuses: set[str]
    ) -> None:
        parent = step_tasks.has_one_child.enqueue("waits")
        run_jobs()
        assert act(admin_client, "cancel", parent, **entered) == [told]
        assert set(Job.objects.values_list("status", flat=True)) == statuses

    def test_who_cancels_is_the_reason_if_none_is_given(self, admin_client: Client) -> None:
        job = tasks.nothing.enqueue()
        act(admin_client, "cancel", job)
        job.refresh_from_db()
        assert job.reason == "cancelled by admin"

    def test_move_and_change_the_priority(self, admin_client: Client) -> None:
        job, running = tasks.nothing.enqueue(), a_running_job()
        assert "1 job was moved. 1 had moved on" in act(admin_client, "move_queue", job, running)[0]
        assert "1 job has the new priority." in act(admin_client, "change_priority", job)[0]
        job.refresh_from_db()
        assert (job.queue_name, job.priority) == ("urgent", 7)
        running.refresh_from_db()
        assert running.queue_name == "running"

    def test_delete(self, admin_client: Client) -> None:
        finished, ready = a_finished_job(), tasks.nothing.enqueue()
        assert "1 job was deleted. 1 had moved on" in act(admin_client, "delete_jobs", finished, ready)[0]
        assert list(Job.objects.values_list("pk", flat=True)) == [ready.pk]

    def test_all_that_match_and_no_others(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(job_actions, "BATCH", 2)
        tasks.nothing.using(queue_name="mail").enqueue_many([{}] * 5)
        other = tasks.nothing.enqueue()
        assert act(admin_client, "cancel", query="?queue=mail") == ["5 jobs were cancelled."]
        assert status_of(other) == "READY"

    def test_more_than_one_request_can_change_are_left_and_told(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_actions, "BATCH", 2)
        monkeypatch.setattr(job_actions, "MOST_CHANGED", 3)
        tasks.nothing.enqueue_many([{}] * 5)
        assert act(admin_client, "cancel") == ["3 jobs were cancelled. There are more: repeat it to go on."]
        assert Job.objects.filter(status="READY").count() == 2

    def test_those_that_can_not_change_stand_in_the_way_of_no_others(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_actions, "MOST_CHANGED", 2)
        ended = [a_finished_job() for _ in range(4)]
        waiting = tasks.nothing.enqueue()
        assert act(admin_client, "cancel") == ["1 job was cancelled."]
        assert status_of(waiting) == "CANCELLED" and status_of(ended[0]) == "SUCCEEDED"
        assert act(admin_client, "cancel", query="?status=SUCCEEDED") == ["0 jobs were cancelled."]

    def test_what_was_done_is_logged_even_if_the_rest_fails(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_actions, "BATCH", 1)
        jobs = [tasks.nothing.enqueue() for _ in range(3)]
        cancel, calls = lifecycle.cancel, list[Any]()

        def fails_the_second_time(using: str, ids: Any, **given: Any) -> Any:
            calls.append(ids)
            if len(calls) == 2:
                raise OperationalError("the server is gone")
            return cancel(using, ids, **given)

        monkeypatch.setattr(lifecycle, "cancel", fails_the_second_time)
        with pytest.raises(OperationalError):
            act(admin_client, "cancel", *jobs)
        assert list(LogEntry.objects.values_list("object_id", flat=True)) == [str(calls[0][0])]

    def test_the_log_says_by_what_a_list_was_narrowed_whose_jobs_were_all_changed(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_actions, "MOST_LOGGED", 1)
        tasks.nothing.using(queue_name="mail").enqueue_many([{}] * 2)
        act(admin_client, "cancel", query="?queue=mail")
        assert LogEntry.objects.get().change_message == "Cancel: 2 jobs were cancelled. (queue=mail)"

    def test_each_leaves_a_line_in_the_log_of_the_admin(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs = [tasks.nothing.enqueue() for _ in range(3)]
        act(admin_client, "cancel", *jobs)
        assert sorted(LogEntry.objects.values_list("object_id", flat=True)) == sorted(str(job.pk) for job in jobs)
        assert "Cancel" in admin_client.get(f"{JOBS}{jobs[0].pk}/history/").content.decode()
        monkeypatch.setattr(job_actions, "MOST_LOGGED", 2)
        act(admin_client, "retry", *jobs)
        assert LogEntry.objects.latest("pk").object_repr == "3 jobs"


class TestPageOfAJob:
    def test_its_buttons_are_what_is_possible_now(self, admin_client: Client) -> None:
        def buttons(job: Job) -> set[str]:
            page = admin_client.get(page_of(job)).content.decode()
            return {name for name in PERMISSIONS if f'name="action" value="{name}"' in page}

        assert buttons(a_dead_job()) == {"retry", "retry_from_start", "delete_jobs"}
        assert buttons(a_finished_job()) == {"retry", "retry_from_start", "delete_jobs"}
        assert buttons(tasks.nothing.enqueue()) == {"cancel", "move_queue", "change_priority"}
        assert buttons(a_running_job()) == {"cancel"}
        undone = a_dead_job()
        Job.objects.filter(pk=undone.pk).update(compensation="failed")
        assert buttons(undone) == {"retry_from_start", "retry_undo", "delete_jobs"}, "a retry would forget what it did"

    def test_it_is_shown_again_after_the_act(self, admin_client: Client) -> None:
        dead = a_dead_job()
        data = {"action": "retry", "_selected_action": [dead.pk], "of_page": dead.pk}
        assert page_of(dead) in admin_client.post(JOBS, data).content.decode(), "the way back"
        response = admin_client.post(JOBS, {**data, "confirmed": "yes"})
        assert response["Location"] == page_of(dead)

    def test_the_list_is_shown_after_its_deletion(self, admin_client: Client) -> None:
        dead = a_dead_job()
        data = {"action": "delete_jobs", "_selected_action": [dead.pk], "of_page": dead.pk, "confirmed": "yes"}
        assert admin_client.post(JOBS, data)["Location"] == JOBS


class TestPermissions:
    @pytest.fixture
    def clerk(self, client: Client) -> User:
        user = User.objects.create_user("clerk", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_job"))
        client.force_login(user)
        return user

    @pytest.mark.parametrize("action", PERMISSIONS)
    def test_who_may_view_may_do_nothing_else(self, client: Client, clerk: User, action: str) -> None:
        jobs = [a_dead_job(), tasks.nothing.enqueue()]
        before = list(Job.objects.order_by("pk").values())
        assert act(client, action, *jobs) == []
        assert list(Job.objects.order_by("pk").values()) == before
        page = client.get(page_of(jobs[0])).content.decode() + client.get(JOBS).content.decode()
        assert f'value="{action}"' not in page

    @pytest.mark.parametrize(("action", "permission"), PERMISSIONS.items())
    def test_each_act_has_its_own(self, client: Client, clerk: User, action: str, permission: str) -> None:
        codenames = {*PERMISSIONS.values()} - {permission}
        clerk.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
        a_dead_job()
        data = {"action": action, "_selected_action": [Job.objects.get().pk], "confirmed": "yes"}
        client.post(JOBS, data)
        assert status_of(Job.objects.get()) == "DEAD"
        clerk.user_permissions.add(Permission.objects.get(codename=permission))
        response = client.post(JOBS, {"action": action, "_selected_action": [Job.objects.get().pk]})
        assert b'name="confirmed"' in response.content

    def test_nothing_changes_by_a_get(self, admin_client: Client) -> None:
        job = a_dead_job()
        before = Job.objects.values().get()
        query = f"action=retry&_selected_action={job.pk}&confirmed=yes&index=0&select_across=1"
        for address in (JOBS, page_of(job), reverse("admin:django_reliable_jobs_overview")):
            admin_client.get(f"{address}?{query}")
        assert Job.objects.values().get() == before

    def test_a_post_without_a_token_is_refused(self, admin_client: Client) -> None:
        job = a_dead_job()
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = admin_client.cookies
        data = {"action": "retry", "_selected_action": [job.pk], "confirmed": "yes"}
        assert strict.post(JOBS, data).status_code == 403
        assert status_of(job) == "DEAD"
