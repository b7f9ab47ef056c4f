"""When an idle worker wakes up: at a notification, at the next due moment, and by polls all the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_reliable_jobs.models import Worker
from tests import tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def names_in_order() -> list[str]:
    return list(Effect.objects.order_by("id").values_list("name", flat=True))


def wait_until_polls_are_rare() -> None:
    """Return when an idle worker has been silent for longer than its pause of 3.2 s: the next one is of 6.4 s."""
    last_look = (
        "SELECT max(query_start) < clock_timestamp() - interval '3.4 s' FROM pg_stat_activity"
        " WHERE query LIKE '%RECURSIVE head AS%' AND datname = current_database() AND pid <> pg_backend_pid()"
    )

    def is_silent() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(last_look)
            return bool(cursor.fetchone()[0])

    wait_for(is_silent, what="the worker to have found nothing for some time")


def test_a_worker_starts_a_new_job_at_once(start_worker: StartWorker) -> None:
    start_worker(settings={"POLL_SECONDS": 60})
    wait_until_polls_are_rare()
    job = tasks.effect.enqueue("woken")
    assert job.wait(timeout=30) == "woken"
    assert job.started_at - job.created_at < timedelta(seconds=2), "a poll would come after about three"


@pytest.mark.parametrize("arguments", [[], ["--queue", "default", "--queue", "low"]], ids=["all queues", "in order"])
def test_what_comes_together_to_an_idle_worker_starts_in_order(start_worker: StartWorker, arguments: list[str]) -> None:
    start_worker("--threads", "1", *arguments, settings={"POLL_SECONDS": 60})
    for number in range(10):
        tasks.effect.enqueue(f"before {number}").wait(timeout=30)
        wait_for(lambda: Worker.objects.filter(is_idle=True).exists(), what="the worker to be idle")
        with transaction.atomic():
            jobs = [tasks.effect.using(priority=priority).enqueue(f"{number} {priority}") for priority in (0, 5, 0, 9)]
        for job in jobs:
            job.wait(timeout=30)
    started = [name for name in names_in_order() if not name.startswith("before")]
    assert started == [f"{number} {priority}" for number in range(10) for priority in (9, 5, 0, 0)]


def test_an_idle_worker_that_serves_queues_in_order_starts_with_the_first(start_worker: StartWorker) -> None:
    start_worker("--threads", "1", "--queue", "first", "--queue", "second", settings={"POLL_SECONDS": 60})
    for number in range(10):
        tasks.effect.using(queue_name="second").enqueue(f"before {number}").wait(timeout=30)
        with transaction.atomic():
            jobs = [tasks.effect.using(queue_name=name).enqueue(f"{number} {name}") for name in ("first", "second")]
        for job in jobs:
            job.wait(timeout=30)
    started = [name for name in names_in_order() if not name.startswith("before")]
    assert started == [f"{number} {name}" for number in range(10) for name in ("first", "second")]


def test_a_due_moment_wakes_the_worker_without_a_poll(start_worker: StartWorker) -> None:
    start_worker(settings={"POLL_SECONDS": 60})
    wait_for(lambda: Worker.objects.filter(is_idle=True).exists(), what="the worker to be idle")
    job = tasks.effect.using(run_after=timedelta(seconds=8)).enqueue("due")
    assert job.status == "SCHEDULED"
    assert job.wait(timeout=60) == "due"
    late = job.started_at - job.run_after
    assert timedelta(0) <= late < timedelta(seconds=3), "a poll would come about five after that moment"


def test_it_finds_work_without_notify(start_worker: StartWorker) -> None:
    start_worker(settings={"LISTEN": "off"})
    wait_for(lambda: Worker.objects.filter(is_idle=True).exists(), what="the worker to be idle")
    assert tasks.effect.enqueue("polled").wait(timeout=30) == "polled"
