"""A project that lets Django keep a pool of connections: a pool is for requests, the processes do without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, connections

from django_reliable_jobs.engine import wakeup
from django_reliable_jobs.models import Worker
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.gates import open_gate, wait_at_gate
from tests.processes.test_connections import sessions
from tests.workers import WorkerProcess

POOLED = {"TESTS_DATABASE_OPTIONS": json.dumps({"pool": {"min_size": 1, "max_size": 1, "timeout": 1}})}


def test_each_thread_of_a_worker_has_its_connection_though_the_pool_is_small(
    start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    names = [f"gate {number}" for number in range(8)]
    jobs = [interrupted_tasks.after_gate.enqueue(str(tmp_path), name) for name in names]
    worker = start_worker("--threads", "8", settings={"POLL_SECONDS": 60}, environment=POOLED)
    for name in names:
        wait_at_gate(tmp_path, name)
    for name in names:
        open_gate(tmp_path, name)
    assert [job.wait(timeout=20) for job in jobs] == names
    wait_for(lambda: Worker.objects.filter(is_idle=True).exists(), what="the worker to be idle")
    assert tasks.effect.enqueue("after").wait(timeout=30) == "after", "it hears of new jobs"
    assert "did not answer" not in worker.output
    wait_for(lambda: len(sessions()) <= 8 + 4, what="no other sessions than one for each thread, and four of its own")


@pytest.mark.django_db(transaction=True)
def test_what_listens_is_no_connection_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "pool", {"min_size": 1, "max_size": 1})
    try:
        with wakeup.listening("default", None) as listening:
            wakeup.notify_schedulers("default")  # from the only place of the pool
            assert listening.autocommit
            assert connection.pool.get_stats()["requests_num"] == 1
    finally:
        connection.close()
        connection.close_pool()
