"""The values of sensitive arguments are shown nowhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from django_reliable_jobs import masking
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.models import Schedule
from tests import tasks
from tests.actors import wait_for
from tests.edges.jobs_command import jobs, jobs_json
from tests.edges.test_schedule_admin_form import fields_of
from tests.schedules import a_schedule
from tests.workers import WorkerProcess

CHANGE = "admin:django_reliable_jobs_schedule_change"


@pytest.mark.django_db
def test_no_page_and_no_command_shows_them(client: Client) -> None:
    job = tasks.pays.enqueue(5, "4111-secret", note="shown")
    assert "4111-secret" not in jobs("show", job.pk) + str(jobs_json("show", job.pk))
    assert "shown" in jobs("show", job.pk)
    client.force_login(get_user_model().objects.create_superuser("root"))
    page = client.get(reverse("admin:django_reliable_jobs_job_change", args=[job.pk])).content.decode()
    assert "4111-secret" not in page
    assert "shown" in page
    job.refresh_from_db()
    assert job.args == [5, "4111-secret"], "the job itself has them"


def test_further_arguments_that_are_sensitive_are_hidden_whatever_their_names() -> None:
    shown = masking.masked(tasks.hides_more.name, [], {"name": "shown", "pin": "1234"})
    assert shown == ([], {"name": "shown", "pin": "(sensitive)"})


@pytest.mark.django_db
class TestSchedules:
    HIDDEN = {"amount": 5, "card": "4111-secret"}

    def test_no_page_and_no_command_shows_them(self, client: Client) -> None:
        schedule = a_schedule(task=tasks.pays.name, kwargs=self.HIDDEN)
        Schedule.objects.update(
            managed_by="code", declared={"kwargs": {"card": "5555-secret"}, "ping_url": "https://x.com/secret"}
        )
        assert "secret" not in str(jobs_json("schedules"))
        for permission in ("view_schedule", "change_schedule"):
            user = get_user_model().objects.create_user(permission, is_staff=True)
            user.user_permissions.add(Permission.objects.get(codename=permission))
            client.force_login(user)
            page = client.get(reverse(CHANGE, args=[schedule.pk])).content.decode()
            assert "secret" not in page
            assert "(sensitive)" in page

    def test_what_is_not_shown_is_kept_unless_it_is_entered_anew(self, admin_client: Client) -> None:
        schedule = a_schedule(task=tasks.pays.name, kwargs=self.HIDDEN)
        sent = fields_of(admin_client, schedule)
        assert "secret" not in str(sent)
        admin_client.post(reverse(CHANGE, args=[schedule.pk]), sent)
        schedule.refresh_from_db()
        assert schedule.kwargs == self.HIDDEN
        admin_client.post(
            reverse(CHANGE, args=[schedule.pk]), {**sent, "kwargs": '{"amount": 6, "card": "(sensitive)"}'}
        )
        schedule.refresh_from_db()
        assert schedule.kwargs == {"amount": 6, "card": "4111-secret"}
        admin_client.post(reverse(CHANGE, args=[schedule.pk]), {**sent, "kwargs": '{"amount": 6, "card": "new"}'})
        schedule.refresh_from_db()
        assert schedule.kwargs == {"amount": 6, "card": "new"}

    def test_they_are_not_kept_for_a_task_that_would_show_them(self, admin_client: Client) -> None:
        schedule = a_schedule(task=tasks.pays.name, kwargs=self.HIDDEN)
        sent = {**fields_of(admin_client, schedule), "task": tasks.nothing.name}
        answer = admin_client.post(reverse(CHANGE, args=[schedule.pk]), sent)
        assert "they are not kept for another task: card" in answer.content.decode()
        schedule.refresh_from_db()
        assert (schedule.task, schedule.kwargs) == (tasks.pays.name, self.HIDDEN)


@pytest.mark.django_db
def test_no_refusal_shows_them() -> None:
    with pytest.raises(InvalidArguments) as caught:
        tasks.pays.enqueue(5, b"4111-secret")  # type: ignore[arg-type]
    assert "4111-secret" not in str(caught.value)


@pytest.mark.django_db(transaction=True)
def test_each_line_that_a_job_logs_names_the_job(start_worker: Callable[..., WorkerProcess]) -> None:
    job = tasks.logs_a_line.enqueue()
    dead = tasks.once_fails.enqueue()
    worker = start_worker(
        "--burst", ready=False, environment={"TESTS_LOG_FORMAT": "{name} {job_id} {task} {attempt}: {message}"}
    )
    worker.wait()
    wait_for(lambda: "shipped" in worker.output, what="the line")
    assert f"shop.orders {job.pk} tests.tasks.logs_a_line 1: the order was shipped" in worker.output
    assert f"django_reliable_jobs {dead.pk} tests.tasks.once_fails 1: job {dead.pk} " in worker.output, worker.output
    assert "django_reliable_jobs None None None: worker " in worker.output
