"""What a worker counts and tells of the jobs that it ran."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models.functions import Now
from django.dispatch import Signal

from django_reliable_jobs import signals
from django_reliable_jobs.engine import counters, lifecycle
from django_reliable_jobs.models import Job, MinuteCount, Pulse, Schedule
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.scheduler import Scheduler
from django_reliable_jobs.processes.tally import Tally
from django_reliable_jobs.processes.worker import Worker
from django_reliable_jobs.testing import at, run_jobs, tick
from tests import tasks
from tests.actors import wait_for
from tests.edges.jobs_command import jobs
from tests.schedules import a_schedule, on
from tests.states import a_running_job
from tests.workers import WorkerProcess

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def heard(*names: str) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What signals of these names say inside the block."""
    told: list[tuple[str, dict[str, Any]]] = []
    receivers: list[tuple[Signal, Any]] = []
    for name in names:

        def receive(sender: Any, *, name: str = name, signal: Signal, **facts: Any) -> None:
            told.append((name, {"sender": sender, **facts}))

        signal: Signal = getattr(signals, name)
        signal.connect(receive, weak=False)
        receivers.append((signal, receive))
    try:
        yield told
    finally:
        for signal, receive in receivers:
            signal.disconnect(receive)


def run_worker() -> Worker:
    """Run a worker in this process until nothing is left to do."""
    worker = Worker(using="default", queues=QueueOrder(), threads=2, burst=True)
    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join(timeout=120)
    assert not thread.is_alive()
    return worker


def counts() -> dict[tuple[str, str], int]:
    rows = MinuteCount.objects.order_by("minute").values_list("task", "outcome", "count")
    found: dict[tuple[str, str], int] = {}
    for task, outcome, count in rows:
        key = task.removeprefix("tests.tasks."), outcome
        found[key] = found.get(key, 0) + count
    return found


def test_each_ending_is_counted_when_it_is_written() -> None:
    tasks.nothing.enqueue_many([{} for _ in range(300)])
    tasks.fails_until.enqueue(2)
    tasks.once.using(run_after=timedelta(hours=1)).enqueue()
    tasks.ends_by.enqueue("fail")
    tasks.ends_by.enqueue("cancel")
    tasks.ends_by.enqueue("snooze", 3600)
    Job.objects.create(task="tests.tasks.gone")
    run_worker()
    assert counts() == {
        ("nothing", "succeeded"): 300,
        ("fails_until", "failed"): 1,
        ("fails_until", "succeeded"): 1,
        ("ends_by", "dead"): 1,
        ("ends_by", "cancelled"): 1,
        ("ends_by", "snoozed"): 1,
        ("gone", "unknown"): 1,
    }


def test_an_atomic_task_counts_too() -> None:
    tasks.atomic_nothing.enqueue()
    run_worker()
    assert counts() == {("atomic_nothing", "succeeded"): 1}


def test_the_seconds_that_jobs_ran_are_summed_up() -> None:
    tasks.slow.enqueue(0.2)
    run_worker()
    assert 0.2 <= MinuteCount.objects.get().seconds < 5


def test_a_success_of_a_watched_task_beats(start_worker: Callable[..., WorkerProcess]) -> None:
    tasks.watched.enqueue()
    start_worker("--burst", ready=False).wait()
    assert Pulse.objects.get(task="tests.tasks.watched").succeeded_at is not None


def test_a_worker_writes_its_counts_while_it_runs(start_worker: Callable[..., WorkerProcess]) -> None:
    start_worker(settings={"LEASE_SECONDS": 2})
    tasks.nothing.enqueue()
    wait_for(counts, what="the counts")


def test_counts_that_can_not_be_written_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally("default")
    tally._counts = {("default", "shop.send", "succeeded"): [2, 0.5]}
    add = counters.add

    def fail(*_: Any) -> None:
        tally._counts[("default", "shop.send", "succeeded")] = [1, 0.25]  # counted meanwhile
        raise OperationalError("the row is locked")

    monkeypatch.setattr(counters, "add", fail)
    with pytest.raises(OperationalError):
        tally.flush()
    monkeypatch.setattr(counters, "add", add)
    tally.flush()
    tally.flush()
    assert list(MinuteCount.objects.values_list("count", "seconds")) == [(3, 0.75)]


class TestSignals:
    def test_a_job_tells_of_its_enqueue_start_and_success(self) -> None:
        with heard("enqueued", "started", "succeeded", "dead", "attempt_failed") as told:
            job = tasks.nothing.enqueue()
            run_worker()
        assert [name for name, _ in told] == ["enqueued", "started", "succeeded"]
        assert all(facts["sender"] is tasks.nothing for _, facts in told)
        assert (told[0][1]["job"], told[0][1]["using"]) == (job, "default")
        assert told[1][1]["context"].id == job.pk
        assert told[2][1]["job_id"] == job.pk

    def test_jobs_that_are_cancelled_while_they_wait_tell_of_it(self) -> None:
        with heard("cancelled") as told:
            first, second = tasks.nothing.enqueue(), tasks.effect.enqueue("x")
            jobs("cancel", first.pk, "--reason", "enough")
            jobs("cancel", "--status", "ready", "--task", "tests.tasks.effect", "--yes")
        assert [(facts["sender"], facts["job_id"], facts["reason"]) for _, facts in told] == [
            (tasks.nothing, first.pk, "enough"),
            (tasks.effect, second.pk, "cancelled by `manage.py jobs cancel`"),
        ]

    def test_jobs_that_expired_are_told_of_by_the_worker(self) -> None:
        job = tasks.nothing.enqueue()
        Job.objects.filter(pk=job.pk).update(expires_at=Now() - timedelta(seconds=1))
        with heard("cancelled") as told:
            run_worker()
        assert [(facts["job_id"], facts["reason"]) for _, facts in told] == [
            (job.pk, "expired: it was not started in time")
        ]

    def test_a_job_that_its_schedule_replaces_is_told_of_by_the_scheduler(self) -> None:
        Schedule.objects.all().delete()
        a_schedule(overlap="replace", catch_up="all")
        [first] = tick(at=on(2, 1))
        with heard("cancelled") as told, at(on(2, 2)):
            Scheduler(using="default", channels=[])._tick()
        [(_, facts)] = told
        assert (facts["sender"], facts["job_id"]) == (tasks.nothing, first.pk)
        assert facts["reason"].startswith("replaced by the job of its schedule for 2026-03-02T02:00")

    def test_a_job_that_was_asked_to_end_while_it_ran_is_told_of_when_it_is_at_rest(self) -> None:
        job = a_running_job()
        lifecycle.cancel("default", [job.pk], reason="enough")
        Job.objects.filter(pk=job.pk).update(status="SCHEDULED", run_after=Now() + timedelta(hours=1))
        with heard("cancelled") as told:
            run_worker()
        assert [(facts["job_id"], facts["reason"]) for _, facts in told] == [(job.pk, "enough")]

    def test_they_are_sent_in_the_tests_of_projects_too(self) -> None:
        with heard("enqueued", "started", "succeeded", "dead") as told:
            tasks.nothing.enqueue()
            tasks.once_fails.enqueue()
            run_jobs(raise_errors=False)
        assert [name for name, _ in told] == ["enqueued", "enqueued", "started", "succeeded", "started", "dead"]

    def test_many_jobs_tell_of_each(self) -> None:
        with heard("enqueued") as told:
            made = tasks.nothing.enqueue_many([{"a": 1}, {"a": 2}])
        assert [facts["job"] for _, facts in told] == made

    def test_a_duplicate_that_was_found_was_not_enqueued(self) -> None:
        with heard("enqueued") as told:
            tasks.unique.enqueue("key")
            tasks.unique.enqueue("key")
        assert len(told) == 1

    def test_failures_tell_of_each_attempt_and_of_the_death(self) -> None:
        with heard("attempt_failed", "dead", "succeeded", "cancelled") as told:
            tasks.ends_by.using().enqueue("retry", 0)
            run_worker()
            tasks.ends_by.enqueue("cancel")
            run_worker()
        assert [(name, facts["attempt"]) for name, facts in told] == [
            ("attempt_failed", 1),
            ("attempt_failed", 2),
            ("dead", 2),
            ("cancelled", 1),
        ]
        assert told[2][1]["reason"] == "asked to retry"

    def test_success_is_told_when_it_is_committed(self) -> None:
        seen: list[str] = []

        def look(job_id: int, **_: Any) -> None:
            seen.append(Job.objects.get(pk=job_id).status)

        signals.succeeded.connect(look)
        try:
            tasks.nothing.enqueue()
            tasks.atomic_nothing.enqueue()
            run_worker()
        finally:
            signals.succeeded.disconnect(look)
        assert seen == ["SUCCEEDED", "SUCCEEDED"]

    def test_receivers_that_raise_are_logged_and_change_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        def fail(**_: Any) -> None:
            raise ValueError("a fault of the receiver")

        for signal in (signals.enqueued, signals.started, signals.succeeded):
            signal.connect(fail)
        try:
            job = tasks.effect.enqueue("x")
            run_worker()
        finally:
            for signal in (signals.enqueued, signals.started, signals.succeeded):
                signal.disconnect(fail)
        job.refresh_from_db()
        assert job.status == "SUCCEEDED"
        assert caplog.text.count("a receiver of a signal failed") == 3

    def test_without_receivers_nothing_is_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise AssertionError("a signal that nobody hears was sent")

        monkeypatch.setattr(signals, "send", fail)
        job = tasks.nothing.enqueue()
        run_worker()
        job.refresh_from_db()
        assert job.status == "SUCCEEDED"


def test_a_replaced_attempt_is_neither_counted_nor_told() -> None:
    with heard("succeeded") as told:
        tasks.replaced_while_it_runs.enqueue()
        run_worker()
    assert [facts["attempt"] for _, facts in told] == [1], "the second claim of the first attempt"
    assert counts() == {("replaced_while_it_runs", "succeeded"): 1}
