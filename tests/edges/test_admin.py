from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone, translation

from django_reliable_jobs.admin import job_page
from django_reliable_jobs.engine import queues, revival
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.models import Attempt, Job, Queue, Worker
from tests import tasks
from tests.recorded import run_jobs
from tests.states import a_dead_job, a_running_job, a_worker

pytestmark = pytest.mark.django_db

PAGES = "/admin/django_reliable_jobs/"
MARKUP = "<script>alert('x')</script>&"


def page_of(job: Job) -> str:
    return f"{PAGES}job/{job.pk}/change/"


def listed(client: Client, query: str = "") -> list[int]:
    response = client.get(f"{PAGES}job/{query}")
    assert response.status_code == 200
    return [job.pk for job in response.context["cl"].result_list]


class TestJobList:
    def test_it_shows_the_newest_jobs_first_with_what_matters(self, admin_client: Client) -> None:
        older = tasks.nothing.enqueue()
        newer = tasks.fails.using(queue_name="mail", priority=7).enqueue()
        run_jobs()
        assert listed(admin_client) == [newer.pk, older.pk]
        older.refresh_from_db()
        text = admin_client.get(f"{PAGES}job/").content.decode()
        for shown in ("fails", "scheduled", "1/3", "mail", ">7<", "succeeded", "1/5", "2 jobs"):
            assert shown in text
        assert older.finished_at is not None
        assert as_local(older.finished_at).split(" ", maxsplit=1)[1] in text

    @pytest.mark.parametrize("status", Job.Status.values)
    def test_it_is_filtered_by_status(self, admin_client: Client, status: str) -> None:
        ended = status in Job.ENDED
        row = {
            "status": status,
            "finished_at": Now() if ended else None,
            "token": 1,
            "worker_id": 1,
            "started_at": Now(),
        }
        wanted = Job.objects.create(task="wanted", **row)
        Job.objects.create(task="other", status="READY" if status != "READY" else "SCHEDULED")
        assert listed(admin_client, f"?status={status}") == [wanted.pk]

    def test_a_status_that_there_is_not_filters_nothing(self, admin_client: Client) -> None:
        assert listed(admin_client, "?status=x") == [] == list(Job.objects.all())
        job = tasks.nothing.enqueue()
        assert listed(admin_client, "?status=x") == [job.pk]

    def test_a_number_finds_exactly_the_job_of_this_id(self, admin_client: Client) -> None:
        job = tasks.nothing.enqueue()
        Job.objects.create(task=str(job.pk))
        Job.objects.create(id=job.pk * 10 + 1, task="x")
        assert listed(admin_client, f"?q= {job.pk} ") == [job.pk]
        assert listed(admin_client, f"?q={2**63}") == []
        assert listed(admin_client, f"?q={'9' * 5000}") == []

    def test_text_finds_tasks_by_the_beginning_or_the_last_parts_of_their_name(self, admin_client: Client) -> None:
        nothing, effect = tasks.nothing.enqueue(), tasks.effect.enqueue("x")
        assert listed(admin_client, "?q=tests.tasks.e") == [effect.pk]
        assert listed(admin_client, "?q=tests.tasks") == [effect.pk, nothing.pk]
        assert listed(admin_client, "?q=effect") == listed(admin_client, "?q=tasks.effect") == [effect.pk]
        assert listed(admin_client, "?q=tasks") == listed(admin_client, "?q=ffect") == []
        assert listed(admin_client, "?q=%25") == [], "a per cent sign is no wildcard"


class TestJobPage:
    def test_it_shows_arguments_result_and_moments(self, admin_client: Client) -> None:
        job = tasks.with_context.enqueue(name="Ada")
        run_jobs()
        text = admin_client.get(page_of(job)).content.decode()
        job.refresh_from_db()
        assert "{&quot;name&quot;: &quot;Ada&quot;}" in text
        assert "&quot;attempt&quot;: 1" in text
        assert job.finished_at is not None
        assert as_local(job.finished_at) in text
        assert "attempts that did not succeed" not in text

    def test_it_shows_the_attempts_that_did_not_succeed_newest_first(self, admin_client: Client) -> None:
        job = tasks.fails_until.enqueue(3)
        run_jobs()
        text = admin_client.get(page_of(job)).content.decode()
        assert text.index("ConnectionError: attempt 2") < text.index("ConnectionError: attempt 1")
        assert "Traceback (most recent call last):" in text
        assert "test:0" in text

    @pytest.mark.parametrize(
        ("language", "of_retry", "of_run"),
        [
            (
                "en",
                "Before the job was retried; since then, attempts",
                "Run 1, before the job was retried from the start",
            ),
            ("de", "Bevor der Job wiederholt wurde; seitdem", "Lauf 1, bevor der Job von vorn wiederholt wurde"),
        ],
    )
    def test_the_attempts_before_a_retry_stand_apart(
        self, admin_client: Client, language: str, of_retry: str, of_run: str
    ) -> None:
        job = tasks.fails_until.enqueue(99)
        run_jobs()
        revival.revive("default", [job.pk])
        run_jobs()
        with translation.override(language):
            text = admin_client.get(page_of(job)).content.decode()
        [before, after] = text.split(of_retry)
        assert [part.count("ConnectionError: attempt 1") for part in (before, after)] == [2, 2], "line and traceback"
        assert of_run not in text
        revival.revive("default", [job.pk], from_start=True)
        with translation.override(language):
            text = admin_client.get(page_of(job)).content.decode()
        assert text.index(of_run) < text.index("ConnectionError") < text.index(of_retry)

    def test_it_shows_only_the_last_attempts_of_a_job_that_has_many(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_page, "MOST_ATTEMPTS", 2)
        job = a_dead_job()
        now = timezone.now()
        for claim in range(1, 5):
            Attempt.objects.create(
                job=job,
                number=1,
                claim=claim,
                outcome="snoozed",
                started_at=now,
                finished_at=now,
                worker=f"host:{claim}",
            )
        text = admin_client.get(page_of(job)).content.decode()
        assert [f"host:{claim}" in text for claim in (1, 2, 3, 4)] == [False, False, True, True]

    def test_it_takes_a_fixed_number_of_queries(
        self, admin_client: Client, django_assert_num_queries: Callable[..., Any]
    ) -> None:
        job = tasks.fails_until.enqueue(3)
        run_jobs()
        # session, user, job, now, attempts, worker, progress, last checkpoint, loops, steps, children, progress then
        with django_assert_num_queries(12):
            admin_client.get(page_of(job))


@pytest.fixture
def job_full_of_markup() -> Job:
    job = Job.objects.create(
        task=MARKUP,
        queue_name=MARKUP,
        args=[MARKUP],
        kwargs={MARKUP: MARKUP},
        result={"text": MARKUP},
        reason=MARKUP,
        status="DEAD",
        finished_at=Now(),
    )
    now = timezone.now()
    Attempt.objects.create(
        job=job,
        number=1,
        claim=1,
        outcome="failed",
        started_at=now,
        finished_at=now,
        **dict.fromkeys(("worker", "error_class", "error_message", "traceback"), MARKUP),
    )
    Worker.objects.create(
        id=1, host=MARKUP, pid=1, threads=1, queues=[MARKUP], excluded_queues=[MARKUP], expires_at=Now()
    )
    Queue.objects.create(name=MARKUP)
    return job


@pytest.mark.parametrize("page", ["job/", "job/{}/change/", "worker/", "worker/1/change/"])
def test_markup_in_any_value_is_shown_and_not_obeyed(admin_client: Client, job_full_of_markup: Job, page: str) -> None:
    text = admin_client.get(PAGES + page.format(job_full_of_markup.pk)).content.decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(" in text


@pytest.mark.parametrize("model", ["job", "worker", "queue"])
def test_nobody_adds_changes_or_deletes_in_the_admin(admin_client: Client, model: str) -> None:
    a_running_job()
    queues.pause("default", ["running"])
    row = {"job": Job, "worker": Worker, "queue": Queue}[model].objects.get()
    before = row.__class__.objects.values().get()
    assert admin_client.get(f"{PAGES}{model}/add/").status_code == 403
    assert admin_client.post(f"{PAGES}{model}/{row.pk}/change/", {"priority": 1}).status_code == 403
    assert admin_client.post(f"{PAGES}{model}/{row.pk}/delete/", {"post": "yes"}).status_code == 403
    admin_client.post(f"{PAGES}{model}/", {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    assert row.__class__.objects.values().get() == before


def test_who_may_view_jobs_sees_their_attempts_and_who_may_not_sees_nothing(client: Client) -> None:
    job = tasks.fails.enqueue("no dial tone")
    run_jobs()
    user = User.objects.create_user("ada", is_staff=True)
    client.force_login(user)
    assert client.get(page_of(job)).status_code == 403
    assert client.get(f"{PAGES}job/").status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    assert b"Traceback (most recent call last):" in client.get(page_of(job)).content
    assert client.get(f"{PAGES}worker/").status_code == 403


def test_workers_show_what_they_do(admin_client: Client, django_assert_num_queries: Callable[..., Any]) -> None:
    a_running_job()
    a_worker(8, serves=["mail"], excluded=["slow"], expires_at=Now() - timedelta(seconds=1))
    with django_assert_num_queries(4):  # session, user, count, workers
        text = admin_client.get(f"{PAGES}worker/").content.decode()
    assert text.index("host:7") < text.index("working") < text.index("host:8") < text.index("silent")
    assert "mail except slow" in text
    assert " s ago)" in text


def test_queues_show_whether_they_are_paused(admin_client: Client) -> None:
    queues.pause("default", ["paused"])
    queues.pause("default", ["resumes"], timezone.now() + timedelta(hours=1))
    Queue.objects.create(name="ran_out", paused_at=Now(), resume_at=Now() - timedelta(seconds=1))
    text = admin_client.get(f"{PAGES}queue/").content.decode()
    assert text.count("paused since") == 2
    assert ", until " in text
    assert "ran_out" not in text, "nothing is in it, and nothing is decided about it"
