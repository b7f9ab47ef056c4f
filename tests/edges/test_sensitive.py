"""The values of sensitive arguments are shown nowhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from django_reliable_jobs.exceptions import InvalidArguments
from tests import tasks
from tests.actors import wait_for
from tests.edges.jobs_command import jobs, jobs_json
from tests.workers import WorkerProcess


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
