"""An enqueue notifies idle workers of its queue at COMMIT, and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import transaction

from django_reliable_jobs.engine.wakeup import CHANNEL, listening
from tests import tasks
from tests.factories import IdleWorkerFactory, LostWorkerFactory, WorkerFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def heard() -> Iterator[Callable[[], list[str]]]:
    """Return a function that returns the queues notified since it was last called."""
    with listening("default", None) as ear:

        def hear() -> list[str]:
            ear.execute(f"NOTIFY {CHANNEL}, 'the end'")  # notifications come in the order of commits: this one is last
            payloads: list[str] = []
            for each in ear.notifies(timeout=60):
                if each.payload == "the end":
                    return payloads
                payloads.append(each.payload)
            raise AssertionError("nothing was heard")

        yield hear


def test_an_idle_worker_hears_the_queue_of_a_job_when_it_is_committed(heard: Callable[[], list[str]]) -> None:
    IdleWorkerFactory()
    with transaction.atomic():
        tasks.effect.using(queue_name="fast").enqueue("a")
        assert heard() == []
    assert heard() == ["fast"]
    tasks.effect.enqueue("b")
    tasks.unique.enqueue("c")
    assert heard() == ["default", "default"]


def test_many_jobs_of_a_queue_are_one_notification(heard: Callable[[], list[str]]) -> None:
    IdleWorkerFactory()
    tasks.effect.enqueue_many([{"name": str(number)} for number in range(100)])
    assert heard() == ["default"]


def test_a_rolled_back_enqueue_is_not_heard(heard: Callable[[], list[str]]) -> None:
    IdleWorkerFactory()
    with transaction.atomic():
        tasks.effect.enqueue("a")
        transaction.set_rollback(True)
    assert heard() == []


def test_a_duplicate_is_not_heard(heard: Callable[[], list[str]]) -> None:
    tasks.unique.enqueue("a")
    IdleWorkerFactory()
    tasks.unique.enqueue("a")
    assert heard() == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        WorkerFactory,
        lambda: LostWorkerFactory(is_idle=True),
        lambda: IdleWorkerFactory(queues=["other"]),
        lambda: IdleWorkerFactory(excluded_queues=["default"]),
    ],
    ids=["nobody", "busy", "lost", "serves another queue", "excludes the queue"],
)
def test_nobody_is_notified_who_would_not_come(heard: Callable[[], list[str]], make: Callable[[], object]) -> None:
    make()
    tasks.effect.enqueue("a")
    assert heard() == []


def test_a_worker_that_serves_the_queue_among_others_is_notified(heard: Callable[[], list[str]]) -> None:
    IdleWorkerFactory(queues=["other", "default"], excluded_queues=["slow"])
    tasks.effect.enqueue("a")
    assert heard() == ["default"]


def test_a_job_due_within_a_minute_is_heard_and_one_due_later_is_not(heard: Callable[[], list[str]]) -> None:
    IdleWorkerFactory()
    tasks.effect.using(run_after=timedelta(seconds=50)).enqueue("soon")
    assert heard() == ["default"]
    tasks.effect.using(run_after=timedelta(seconds=70)).enqueue("later")
    assert heard() == []
