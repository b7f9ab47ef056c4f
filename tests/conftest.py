from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connections

from django_reliable_jobs.engine.transaction import around, open_blocks
from tests.workers import WorkerProcess


@pytest.fixture
def start_worker(transactional_db: None) -> Iterator[Callable[..., WorkerProcess]]:
    """Return a function that starts a real worker on the test's database; what still runs at the end is killed."""
    with ExitStack() as started:

        def start(*arguments: str, **options: Any) -> WorkerProcess:
            worker = WorkerProcess(*arguments, **options)
            started.callback(worker.kill)
            return worker

        yield start


@pytest.fixture
def jobs_database(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A second alias, with a connection of its own, for the test's database."""
    monkeypatch.setitem(connections.settings, "jobs", {**connections["default"].settings_dict})
    connections["jobs"].connect()
    yield "jobs"
    connections["jobs"].close()
    del connections["jobs"]


@pytest.fixture
def around_the_job(db: None) -> Iterator[None]:
    """Let the job's own transactions be told from that of the test."""
    reset = around.set(open_blocks())
    yield
    around.reset(reset)
