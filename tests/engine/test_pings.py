"""A monitor outside hears when a job of a schedule starts, succeeds and dies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from django_reliable_jobs.engine import pings, schedules
from django_reliable_jobs.exceptions import InvalidSchedule
from django_reliable_jobs.models import Job, Pinged, Schedule
from django_reliable_jobs.processes.upkeep import PING_TASKS
from django_reliable_jobs.testing import at, run_jobs, tick
from tests.http_server import web_server
from tests.schedules import a_schedule, on

pytestmark = pytest.mark.django_db

URL = "https://hc.example.com/ping/abc"


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


def told() -> list[tuple[str, str]]:
    """The path and the body of each ping that is to be sent, in order."""
    jobs = Job.objects.filter(task__startswith="django_reliable_jobs.ping").order_by("pk")
    return [(urlsplit(job.args[0]).path, job.kwargs.get("body", "")) for job in jobs]


def run_ids() -> list[str]:
    jobs = Job.objects.filter(task__startswith="django_reliable_jobs.ping").order_by("pk")
    return [parse_qs(urlsplit(job.args[0]).query)["rid"][0] for job in jobs]


def set_status(job: Job, status: str, **columns: Any) -> None:
    running = {"token": 1, "worker_id": 1, "started_at": on(2, 1), "claims": 1, "attempt": 1}
    Job.objects.filter(pk=job.pk).update(status=status, **running, **columns)


def a_job(**options: Any) -> Job:
    a_schedule(ping_url=URL, **options)
    with at(on(2, 1)):
        [job] = tick()
    return job


def look(second: int = 5) -> int:
    with at(on(2, 1, 0, second)):
        return pings.enqueue_due("default", PING_TASKS)


def test_start_and_success_are_told_once_under_one_run_id() -> None:
    job = a_job()
    assert look() == 0, "it has not started"
    set_status(job, "RUNNING")
    assert (look(), look()) == (1, 0)
    set_status(job, "SUCCEEDED", finished_at=on(2, 1, 0, 3))
    assert (look(), look(7)) == (1, 0)
    assert told() == [("/ping/abc/start", ""), ("/ping/abc", "")]
    assert len(set(run_ids())) == 1


def test_a_death_is_told_with_its_reason() -> None:
    job = a_job()
    set_status(job, "DEAD", finished_at=on(2, 1, 0, 3), reason="no dial tone")
    look()
    assert told() == [("/ping/abc/fail", "no dial tone")]


def test_a_second_start_is_another_run() -> None:
    job = a_job()
    set_status(job, "RUNNING")
    look()
    Job.objects.filter(pk=job.pk).update(claims=2, attempt=2)
    look()
    assert [path for path, _ in told()] == ["/ping/abc/start"] * 2
    assert len(set(run_ids())) == 2


def test_what_ended_long_ago_is_told_no_more_and_forgotten() -> None:
    job = a_job()
    set_status(job, "SUCCEEDED", finished_at=on(2, 1, 0, 3))
    with at(on(2, 1, 6)):
        assert pings.enqueue_due("default", PING_TASKS) == 0
    look()
    assert Pinged.objects.get().told == [f"{job.pk}:1:SUCCEEDED"]
    with at(on(2, 2)):
        [later] = tick()
    set_status(later, "SUCCEEDED", finished_at=on(2, 2))
    with at(on(2, 2)):
        pings.enqueue_due("default", PING_TASKS)
    assert Pinged.objects.get().told == [f"{later.pk}:1:SUCCEEDED"]


def test_a_schedule_without_an_address_is_left_alone() -> None:
    job = a_job()
    Schedule.objects.update(ping_url="")
    set_status(job, "RUNNING")
    assert look() == 0


def test_pings_wait_in_the_queue_of_their_schedule() -> None:
    job = a_job(queue_name="nightly")
    set_status(job, "RUNNING")
    look()
    assert Job.objects.get(task="django_reliable_jobs.ping_start").queue_name == "nightly"


def test_a_start_that_is_told_too_late_is_not_told() -> None:
    job = a_job()
    set_status(job, "RUNNING")
    look()
    with at(on(2, 1, 2)):
        run_jobs()
    assert Job.objects.get(task="django_reliable_jobs.ping_start").status == "CANCELLED"


def test_a_ping_that_fails_is_tried_again_and_one_that_is_answered_is_done(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"ALLOW_PRIVATE_ADDRESSES": True, "TASK_MODULES": ["tests.tasks"]}
    with web_server() as server:
        PING_TASKS.end.enqueue(f"{server.url}?rid=1", body="why")
        server.status = 500
        [job] = run_jobs(raise_errors=False)
        assert (job.status, job.reason) == ("SCHEDULED", "RequestFailed: 127.0.0.1 answered 500")
        server.status = 200
        with at(job.run_after + timedelta(seconds=1)):
            [job] = run_jobs()
        assert job.status == "SUCCEEDED"
    assert [(method, path, body) for method, path, body, _ in server.requests] == [("POST", "/hook?rid=1", b"why")] * 2


def test_a_ping_to_a_private_address_is_refused() -> None:
    PING_TASKS.end.enqueue("http://169.254.169.254/latest/meta-data/")
    [job] = run_jobs(raise_errors=False)
    assert "not a public address" in (job.reason or "")


@pytest.mark.parametrize(
    ("url", "event", "expected"),
    [
        ("https://hc.example.com/abc", "start", "https://hc.example.com/abc/start?rid="),
        ("https://hc.example.com/abc/", "fail", "https://hc.example.com/abc/fail?rid="),
        ("https://hc.example.com/key/slug?create=1#x", "start", "https://hc.example.com/key/slug/start?create=1&rid="),
        ("https://hc.example.com/abc", "", "https://hc.example.com/abc?rid="),
    ],
)
def test_the_event_stands_behind_the_path(url: str, event: str, expected: str) -> None:
    assert pings.address(url, event, 1, 1).startswith(expected)


@pytest.mark.parametrize(
    "url", ["ftp://example.com", "example.com", "https://me:pw@example.com", "https://x/" + "a" * 500]
)
def test_what_is_no_web_address_is_refused_when_it_is_set(url: str) -> None:
    with pytest.raises(InvalidSchedule, match="ping_url must be an http"):
        a_schedule(ping_url=url)


def test_the_record_goes_with_its_schedule() -> None:
    job = a_job()
    set_status(job, "RUNNING")
    look()
    schedules.delete("default", [Schedule.objects.get().pk])
    assert not Pinged.objects.exists()
