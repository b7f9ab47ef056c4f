"""Connections that break at the moment at which they are made, between the server's answer and Django's set-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from django_reliable_jobs.models import Worker
from tests import interrupted_tasks
from tests.actors import wait_for
from tests.processes.test_connections import QUICK, assert_done_once, sessions, statement, wait_for_cut
from tests.proxy import Proxy
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

OWN = 4  # connections of a worker beside those of the threads that run jobs
SET_UP = statement(b"TimeZone")  # sent by Django when the session's time zone is not the project's


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


def environment_of(proxy: Proxy) -> dict[str, str]:
    return {**proxy.environment, "PGTZ": "Europe/Berlin"}


def test_a_worker_whose_own_connections_break_in_their_set_up_opens_others(
    start_worker: StartWorker, proxy: Proxy
) -> None:
    worker = start_worker("--threads", "1", settings=QUICK, environment=environment_of(proxy))
    wait_for(lambda: len(sessions()) == OWN, what="the worker's own connections")
    cuts = [proxy.cut_before(SET_UP) for _ in range(3 * OWN)]
    proxy.cut_all()
    for cut in cuts:
        wait_for_cut(cut)
    interrupted_tasks.plain_effect.enqueue("after").wait(timeout=60)
    wait_for(lambda: len(sessions()) == OWN + 1, what="all connections, and that of the thread that ran the job")
    assert not worker.has_ended


def test_a_thread_whose_connection_breaks_in_its_set_up_opens_another_for_the_next_job(
    start_worker: StartWorker, proxy: Proxy
) -> None:
    start_worker("--threads", "1", settings=QUICK, environment=environment_of(proxy))
    wait_for(lambda: len(sessions()) == OWN, what="the worker's own connections")
    wait_for(lambda: Worker.objects.filter(is_idle=True).exists(), what="the worker to be idle")
    cut = proxy.cut_before(SET_UP)
    job = interrupted_tasks.plain_effect.enqueue("x")
    wait_for_cut(cut)
    job.wait(timeout=60)
    assert_done_once(job, outcomes=["failed"])
