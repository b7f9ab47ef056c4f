"""How a worker gets on the list of workers when the server does not let it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs.engine import heartbeat, queues
from django_reliable_jobs.models import Worker
from django_reliable_jobs.processes import registration
from django_reliable_jobs.processes import worker as worker_process
from django_reliable_jobs.processes.queues import QueueOrder
from tests import limited_tasks, tasks
from tests.actors import wait_for
from tests.factories import RunningJobFactory, SucceededJobFactory
from tests.schedules import a_schedule
from tests.workers import WorkerProcess

Warnings = Callable[..., list[str]]


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


@pytest.fixture
def warnings_of(db: None, caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """What a worker in this process warns of as it begins, by the queues in its command."""

    def warnings(*named: str, excluded: frozenset[str] = frozenset()) -> list[str]:
        caplog.clear()
        order = QueueOrder(weights=dict.fromkeys(named) if named else None, excluded=excluded)
        registration.introduce(worker_process.Worker(using="default", queues=order, threads=1))
        return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]

    return warnings


def test_a_queue_that_nothing_names_is_warned_of_with_the_one_that_was_meant(warnings_of: Warnings) -> None:
    [warning] = warnings_of("defualt", "default")
    assert warning.endswith("no task, job or schedule names the queue 'defualt': did you mean 'default'?")
    [warning] = warnings_of("zzz")
    assert "names the queue 'zzz': the known ones are " in warning
    assert "default" in warning


def test_so_is_one_that_is_to_be_left_out(warnings_of: Warnings) -> None:
    [warning] = warnings_of(excluded=frozenset({"defualt"}))
    assert "'defualt': did you mean 'default'?" in warning


@pytest.mark.parametrize(
    "make",
    [
        lambda: tasks.effect.using(queue_name="later").enqueue("ready"),
        lambda: tasks.effect.using(queue_name="later", run_after=timedelta(days=1)).enqueue("scheduled"),
        lambda: limited_tasks.one_at_a_time.using(queue_name="later").enqueue(),
        lambda: RunningJobFactory(queue_name="later"),
        lambda: SucceededJobFactory(queue_name="later"),
        lambda: queues.pause("default", ["later"]),
        lambda: a_schedule(queue_name="later"),
    ],
    ids=["a ready job", "a scheduled one", "a limited one", "a running one", "an ended one", "a pause", "a schedule"],
)
def test_a_queue_is_known_by(make: Callable[[], object], warnings_of: Warnings) -> None:
    assert len(warnings_of("later")) == 1
    make()
    assert warnings_of("later") == []


def test_a_queue_that_a_task_or_the_settings_of_the_framework_declare_is_known_without_a_question(
    warnings_of: Warnings, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        assert warnings_of("default", "patient") == warnings_of() == []


def test_a_worker_that_serves_an_unknown_queue_says_so_and_works(start_worker: Callable[..., WorkerProcess]) -> None:
    worker = start_worker("--queue", "defualt")
    wait_for(lambda: "did you mean 'default'?" in worker.output, what="the warning")
    tasks.effect.using(queue_name="defualt").enqueue("a").wait(timeout=30)
