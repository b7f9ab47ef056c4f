"""Dead letters in groups of a task and an error; a group is tried again as a whole."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import strip_tags
from django.utils.translation import override

from django_reliable_jobs.admin import job_actions
from django_reliable_jobs.engine import dead_letters
from django_reliable_jobs.models import Attempt, Job
from tests.edges.test_admin import PAGES, listed

pytestmark = pytest.mark.django_db

DEAD = f"{PAGES}job/dead/"
MARKUP = "<script>alert('x')</script>&"


def died(task: str = "billing.charge", error: str = "CardDeclined", message: str = "no money", ago: int = 1) -> Job:
    moment = timezone.now() - timedelta(hours=ago)
    job = Job.objects.create(task=task, status="DEAD", finished_at=moment, claims=2, attempt=2, max_attempts=2)
    for claim, name in ((1, "Earlier"), (2, error)):
        times = {"started_at": moment, "finished_at": moment}
        Attempt.objects.create(
            *(),
            job=job,
            number=claim,
            claim=claim,
            outcome="failed",
            worker="w",
            error_class=name,
            error_message=message,
            **times,
        )
    return job


def test_they_are_grouped_by_task_and_the_error_of_the_last_attempt() -> None:
    for ago in (5, 1, 3):
        newest = died(ago=ago, message=f"{ago} h ago")
    died(error="Timeout", ago=9)
    died(task="mail.send", ago=2)
    found = [(each.task, each.error, each.jobs, each.message) for each in dead_letters.groups("default")]
    assert found == [
        ("billing.charge", "CardDeclined", 3, "1 h ago"),
        ("mail.send", "CardDeclined", 1, "no money"),
        ("billing.charge", "Timeout", 1, "no money"),
    ]
    group = dead_letters.groups("default")[0]
    assert group.last - group.first == pytest.approx(timedelta(hours=4), abs=timedelta(seconds=1))
    assert group.newest == newest.pk


def test_what_died_without_an_exception_is_a_group_too(admin_client: Client) -> None:
    job = Job.objects.create(task="x", status="DEAD", finished_at=timezone.now(), reason="its worker was lost")
    other = died(task="x")
    [group] = [each for each in dead_letters.groups("default") if each.error == dead_letters.NO_ERROR]
    assert (group.jobs, group.message) == (1, "its worker was lost")
    assert listed(admin_client, "?status=DEAD&task=x&error=-") == [job.pk]
    assert listed(admin_client, "?status=DEAD&task=x&error=CardDeclined") == [other.pk]


@pytest.mark.parametrize(
    ("language", "told"),
    [("en", "1 job has used up its attempts"), ("de", "1 Job hat seine Versuche verbraucht")],
)
def test_one_is_told_of_as_one(admin_client: Client, language: str, told: str) -> None:
    died()
    with override(language):
        assert told in admin_client.get(DEAD).content.decode()


def test_the_page_shows_them_and_leads_to_each_group(admin_client: Client) -> None:
    jobs = [died(), died(), died(error="Timeout")]
    page = admin_client.get(DEAD).content.decode()
    text = re.sub(r"\s+", " ", strip_tags(page))
    assert "3 jobs have used up their attempts" in text
    assert "billing.charge CardDeclined no money" in text
    url = re.findall(r'<a href="([^"]*error=CardDeclined[^"]*)"', page)[0].replace("&amp;", "&")
    assert url.startswith(f"{PAGES}job/?")
    assert listed(admin_client, url.partition("job/")[2]) == [jobs[1].pk, jobs[0].pk]


def test_a_group_is_tried_again_and_no_other(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_actions, "BATCH", 2)
    jobs = [died() for _ in range(3)]
    other, same_error = died(error="Timeout"), died(task="mail.send")
    url = f"{PAGES}job/?status=DEAD&task=billing.charge&error=CardDeclined"
    data = {"action": "retry", "select_across": "1", "_selected_action": "0", "of_page": "dead", "index": "0"}
    question = admin_client.post(url, data).content.decode()
    assert "All that match the list and are in a state for it: about 3 jobs." in question
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\w*)">', question))
    response = admin_client.post(url, {**fields, "spread": "", "csrfmiddlewaretoken": ""})
    assert response["Location"] == DEAD
    assert set(Job.objects.filter(status="READY")) == set(jobs)
    assert set(Job.objects.filter(status="DEAD")) == {other, same_error}


def test_who_may_only_view_has_no_buttons(client: Client) -> None:
    died()
    user = User.objects.create_user("ada", is_staff=True)
    client.force_login(user)
    assert client.get(DEAD).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    page = client.get(DEAD).content.decode()
    assert "CardDeclined" in page and 'name="action"' not in page


def test_it_takes_as_many_statements_for_many_as_for_none(admin_client: Client) -> None:
    numbers = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            admin_client.get(DEAD)
        numbers.append(len(captured))
        for number in range(12):
            died(error=f"Error{number}")
    assert numbers[0] == numbers[1] == 4  # session, user, groups, now


def test_it_obeys_no_markup(admin_client: Client) -> None:
    died(MARKUP, MARKUP, MARKUP)
    page = admin_client.get(DEAD).content.decode()
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;") >= 3
