"""How a worker gets on the list of workers when the server does not let it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from django_reliable_jobs.engine import heartbeat
from django_reliable_jobs.models import Worker
from tests.actors import wait_for
from tests.workers import WorkerProcess


@contextmanager
def read_only_for_newcomers() -> Iterator[None]:
    """Inside, every new session of the test's database refuses writes."""
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        try:
            yield
        finally:
            cursor.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")


def test_a_worker_that_is_started_on_a_read_only_server_waits_for_it(
    start_worker: Callable[..., WorkerProcess],
) -> None:
    with read_only_for_newcomers():
        worker = start_worker(ready=False)
        wait_for(lambda: "read-only" in worker.output or worker.has_ended, what="the refusal")
        assert not worker.has_ended, worker.output
    wait_for(lambda: worker.row or worker.has_ended, what="the worker to register")
    assert not worker.has_ended, worker.output


@pytest.mark.django_db
def test_a_registration_whose_answer_was_lost_is_repeated_without_harm() -> None:
    identity = heartbeat.new_identity("host", 1)
    for _ in range(2):
        heartbeat.register("default", identity, queues=None, excluded=[], threads=1)
    assert Worker.objects.get().id == identity.id


def test_it_tells_how_much_memory_it_uses(start_worker: Callable[..., WorkerProcess]) -> None:
    start_worker()
    wait_for(lambda: Worker.objects.filter(memory__gt=10_000_000).exists(), what="the first renewal")
