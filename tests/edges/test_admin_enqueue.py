"""Jobs made by hand: only of tasks that allow it, by who has the permission, from a form of the signature."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_reliable_jobs.exceptions import InvalidTask
from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import build
from tests import tasks
from tests.edges.test_admin import PAGES, page_of

pytestmark = pytest.mark.django_db

ENQUEUE = f"{PAGES}job/enqueue/"


def post(client: Client, **entered: Any) -> Any:
    return client.post(ENQUEUE, {"task": tasks.by_hand.name, **entered})


def test_only_tasks_that_allow_it_are_offered(admin_client: Client) -> None:
    page = admin_client.get(ENQUEUE).content.decode()
    assert "tests.tasks.by_hand" in page
    assert "tests.tasks.nothing" not in page
    for name in ("tests.tasks.nothing", "os.system"):
        assert admin_client.get(ENQUEUE, {"task": name}).status_code == 404
        assert admin_client.post(ENQUEUE, {"task": name}).status_code == 404
    assert not Job.objects.exists()


def test_the_form_has_a_field_for_each_argument(admin_client: Client) -> None:
    page = admin_client.get(ENQUEUE, {"task": tasks.by_hand.name}).content.decode()
    for name in ("name", "times", "is_loud", "tags", "secret", "more"):
        assert f'name="{name}"' in page
    assert 'type="password"' in page, "the sensitive one"
    assert 'autocomplete="new-password"' in page, "no browser fills in what it knows"
    assert '<input type="hidden" name="task" value="tests.tasks.by_hand">' in page
    assert "Say a name so many times." in page
    assert not Job.objects.exists(), "nothing by GET"


def test_each_input_has_a_name_for_who_can_not_see_it(admin_client: Client) -> None:
    page = admin_client.get(ENQUEUE, {"task": tasks.by_hand.name}).content.decode()
    for name in re.findall(
        r'<(?:input type="(?!hidden|submit)|textarea|select)[^>]*name="(own_\w+|more|times|secret)"', page
    ):
        tag = re.findall(rf'<[^>]*name="{name}"[^>]*>', page)[0]
        assert "aria-label=" in tag or f'for="id_{name}"' in page, tag


def test_its_form_has_the_styles_of_the_admin(admin_client: Client) -> None:
    page = admin_client.get(ENQUEUE, {"task": "tests.tasks.by_hand"}).content.decode()
    assert "admin/css/forms.css" in page and "admin/css/widgets.css" in page, "each on its own since Django 6.1"


def test_what_is_left_empty_has_its_default(admin_client: Client) -> None:
    response = post(admin_client, name="Ada")
    job = Job.objects.get()
    assert response["Location"] == page_of(job)
    assert (job.task, job.kwargs) == ("tests.tasks.by_hand", {"name": "Ada", "is_loud": False})
    assert LogEntry.objects.get().object_id == str(job.pk)


def test_values_come_as_their_types(admin_client: Client) -> None:
    post(admin_client, name=" Ada", times="3", is_loud="on", tags='["a", null]', secret="x", more='{"further": 1}')
    assert Job.objects.get().kwargs == {
        "name": " Ada",
        "times": 3,
        "is_loud": True,
        "tags": ["a", None],
        "secret": "x",
        "further": 1,
    }


def test_it_may_be_placed_otherwise(admin_client: Client) -> None:
    post(
        admin_client,
        name="Ada",
        own_run_after_0="2126-03-01",
        own_run_after_1="09:30:00",
        own_queue_name="mail",
        own_priority="-5",
    )
    job = Job.objects.get()
    assert (job.status, job.queue_name, job.priority) == ("SCHEDULED", "mail", -5)
    assert job.run_after == datetime(2126, 3, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "entered",
    [
        {},
        {"name": "x", "times": "many"},
        {"name": "x", "tags": "[1"},
        {"name": "x", "own_priority": "101"},
        {"name": "x", "own_queue_name": "no good*"},
        {"name": "x", "more": '{"name": "twice"}', "own_run_after_0": "x"},
        {"name": "x", "more": "[1]"},
        {"name": "\0"},
    ],
)
def test_what_can_not_hold_is_shown_again(admin_client: Client, entered: dict[str, Any]) -> None:
    response = post(admin_client, **entered)
    assert response.status_code == 200
    assert response.context["form"].errors
    assert not Job.objects.exists()


def test_a_duplicate_is_told_and_shown(admin_client: Client) -> None:
    first = tasks.by_hand.enqueue("Ada")
    response = admin_client.post(ENQUEUE, {"task": tasks.by_hand.name, "name": "Ada"}, follow=True)
    assert [str(each) for each in response.context["messages"]] == [
        f"Job {first.pk} is there already, with the same unique key."
    ]
    assert Job.objects.count() == 1
    assert not LogEntry.objects.exists()


def test_it_needs_its_permission(client: Client) -> None:
    user = User.objects.create_user("clerk", is_staff=True)
    others = ("view_job", "retry_job", "cancel_job", "move_job", "delete_job")
    user.user_permissions.add(*Permission.objects.filter(codename__in=others))
    client.force_login(user)
    assert client.get(ENQUEUE).status_code == client.post(ENQUEUE, {"task": tasks.by_hand.name}).status_code == 403
    assert ENQUEUE not in client.get(f"{PAGES}job/").content.decode()
    user.user_permissions.add(Permission.objects.get(codename="enqueue_job"))
    assert ENQUEUE in client.get(f"{PAGES}job/").content.decode()
    assert post(client, name="Ada").status_code == 302
    assert Job.objects.exists()


def test_the_option_is_yes_or_no() -> None:
    with pytest.raises(InvalidTask, match="admin_enqueue"):
        build(tasks.nothing.function, admin_enqueue="yes")  # type: ignore[arg-type]
