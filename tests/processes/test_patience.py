"""A database that does not answer: a burst gives up after a while, what is to run for ever waits for it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
from django.db import OperationalError

from django_reliable_jobs.models import Job
from django_reliable_jobs.processes import patience
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.worker import Worker
from tests import tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.ports import free_port
from tests.processes.test_registration import read_only_for_newcomers
from tests.proxy import Proxy
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

TOLD = "did not answer"
GAVE_UP = "has not answered for"
QUICK = {"LEASE_SECONDS": 3, "POLL_SECONDS": 0.2}


def bears(seconds: float, **environment: str) -> dict[str, str]:
    return {"TESTS_CONSTANTS": json.dumps({"patience.BURST_SECONDS": seconds}), **environment}


def unreached() -> list[dict[str, str]]:
    return [
        {"TESTS_DATABASE_HOST": "127.0.0.1", "TESTS_DATABASE_PORT": str(free_port())},
        {"TESTS_DATABASE_NAME": "no_such_database"},
    ]


@pytest.mark.parametrize("way", unreached(), ids=["no server", "no such database"])
@pytest.mark.parametrize("words", [[], ["--with-scheduler"]], ids=["alone", "with a scheduler"])
def test_a_burst_gives_up_a_database_that_it_can_not_reach(
    start_worker: StartWorker, words: list[str], way: dict[str, str]
) -> None:
    worker = start_worker("--burst", *words, ready=False, environment=bears(0.5, **way))
    assert worker.wait(timeout=60) == 1
    assert worker.output.count("ERROR") == worker.output.count(GAVE_UP) == 1, worker.output
    assert "the database 'default' has not answered" in worker.output
    assert "Traceback" not in worker.output


def test_the_children_of_a_burst_give_up_and_none_is_started_again(start_worker: StartWorker) -> None:
    environment = bears(0.5, TESTS_DATABASE_NAME="no_such_database")
    supervisor = start_worker("--processes", "2", "--burst", ready=False, environment=environment)
    assert supervisor.wait(timeout=60) == 1
    assert supervisor.output.count(GAVE_UP) == 2, supervisor.output


def test_a_burst_that_gives_up_leaves_its_jobs_to_be_rescued(start_worker: StartWorker) -> None:
    proxy = Proxy()
    try:
        job = tasks.slow.enqueue(60)
        worker = start_worker("--burst", settings=QUICK, environment=bears(1, **proxy.environment))
        wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    finally:
        proxy.close()
    assert worker.wait(timeout=60) == 1
    assert worker.output.count(GAVE_UP) == 1, worker.output
    assert "its jobs in hand (1) are taken back when its lease has run out" in worker.output
    job.refresh_from_db()
    assert (job.status, job.attempts.count()) == ("RUNNING", 0)
    start_worker(settings=QUICK)
    wait_for(lambda: Job.objects.get().claims == 2, what="the rescue")


@pytest.mark.parametrize("words", [[], ["--with-scheduler"]], ids=["alone", "with a scheduler"])
def test_a_burst_survives_an_outage_that_is_short(start_worker: StartWorker, words: list[str]) -> None:
    tasks.effect.enqueue("after")
    with read_only_for_newcomers():
        worker = start_worker("--burst", *words, ready=False, environment=bears(60))
        wait_for(lambda: worker.output.count(TOLD) >= 3, what="some failures")
    assert worker.wait(timeout=60) == 0
    assert Effect.objects.get().name == "after"


def test_what_is_to_run_for_ever_does_not_give_up(start_worker: StartWorker) -> None:
    worker = start_worker(ready=False, environment=bears(0.1, TESTS_DATABASE_NAME="no_such_database"))
    wait_for(lambda: worker.output.count(TOLD) >= 4 or worker.has_ended, what="some failures")
    assert not worker.has_ended
    assert GAVE_UP not in worker.output


@pytest.mark.django_db(transaction=True)
def test_only_failures_in_a_row_use_up_patience(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "BURST_SECONDS", 0.25)
    worker = Worker(using="default", queues=QueueOrder(), threads=1, burst=True)
    error = OperationalError("the server is gone")
    for _ in range(5):  # each waits a tenth of a second
        worker._patience.failed(error)
        worker._patience.answered()
    assert not worker.stops_asked
    for _ in range(3):
        worker._patience.failed(error)
    assert worker.stops_asked == 1
    told = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [GAVE_UP in each.getMessage() for each in told] == [True]
