from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.workers import WorkerProcess


@pytest.fixture
def start_worker(transactional_db: None) -> Iterator[Callable[..., WorkerProcess]]:
    """Return a function that starts a real worker on the test's database; what still runs at the end is killed."""
    started: list[WorkerProcess] = []

    def start(*arguments: str, **options: Any) -> WorkerProcess:
        worker = WorkerProcess(*arguments, **options)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill()
