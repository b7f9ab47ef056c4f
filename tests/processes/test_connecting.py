"""Connections that break at the moment at which they are made, between the server's answer and Django's set-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import OperationalError
from django.db.backends.postgresql.base import DatabaseWrapper

from django_reliable_jobs.models import Worker
from django_reliable_jobs.processes import connections
from tests import interrupted_tasks
from tests.actors import wait_for
from tests.processes.test_connections import QUICK, sessions, statement, wait_for_cut
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


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("after", [connections.leave_clean, connections.close_all], ids=["a job", "a turn of a loop"])
def test_a_connection_that_breaks_in_its_set_up_is_replaced_after(
    after: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up = DatabaseWrapper.init_connection_state

    def break_once(wrapper: DatabaseWrapper) -> None:
        monkeypatch.setattr(DatabaseWrapper, "init_connection_state", set_up)
        wrapper.connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def thread_of_a_worker() -> int:
        connections.watch_queries()
        connections.make_usable()
        with pytest.raises(OperationalError):
            Worker.objects.count()
        after()
        connections.make_usable()
        try:
            return Worker.objects.count()
        finally:
            connections.close_all()

    monkeypatch.setattr(DatabaseWrapper, "init_connection_state", break_once)
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(thread_of_a_worker).result(timeout=60) == 0
