"""What a worker does while PostgreSQL works on its exchange: it starts what the one before it brought."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from django.db import OperationalError, connection
from psycopg.pq import TransactionStatus

from django_reliable_jobs import signals
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.transaction import own
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes.execution import NO_RESULT
from django_reliable_jobs.processes.intake import Intake
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.worker import Worker
from tests import tasks
from tests.actors import on_stage, somebody_waits_for_a_lock, terminate, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = 60


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker of fast jobs, which holds 40 and claims 20 at once. It runs none: its pool was not started."""
    monkeypatch.setattr(Intake, "target", 40)
    tasks.nothing.enqueue_many([{}] * JOBS)
    worker = Worker(using="default", queues=QueueOrder(), threads=2)
    worker._register()
    own("default")
    yield worker
    connection.close()


def exchange(worker: Worker) -> None:
    assert worker._intake.exchange(worker._intake.wanted())


def end_all(worker: Worker) -> int:
    """End what is held as the threads would; return how many jobs that were."""
    running = worker.recorder.running_or_next()
    for held in running:
        held.started, held.ended, held.outcome = worker.vitals.turned_at, worker.vitals.turned_at, NO_RESULT
        worker.recorder.add_ended(held)
    return len(running)


def succeeded() -> int:
    return Job.objects.filter(status=Job.Status.SUCCEEDED).count()


def test_the_first_jobs_start_at_once(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "target", 2)  # one for each thread: it is not known how long they take
    exchange(worker)
    assert worker.recorder.in_hand == worker._intake.in_hand == 2


def test_what_arrives_beside_jobs_in_hand_starts_when_the_next_exchange_is_on_its_way(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange(worker)
    exchange(worker)
    assert (worker.recorder.in_hand, worker._intake.in_hand) == (20, 40), "not started, but counted"
    assert worker._intake.wanted() == 0
    end_all(worker)
    start = worker._intake._start
    with on_stage("somebody") as [somebody]:
        somebody.begins()
        somebody.does(lambda: connection.cursor().execute("LOCK TABLE django_reliable_jobs_cancelrequest"))

        def start_and_let_go(jobs: Sequence[ClaimedJob]) -> None:
            # The exchange stands at somebody's lock, so it is on its way; had it not been sent, nobody would wait.
            wait_for(lambda: somebody.does(somebody_waits_for_a_lock), what="the next exchange")
            start(jobs)
            somebody.rolls_back()

        monkeypatch.setattr(worker._intake, "_start", start_and_let_go)
        exchange(worker)
    assert succeeded() == 20
    assert (worker.recorder.in_hand, worker._intake.in_hand) == (20, 40)


def test_the_last_jobs_start_at_once(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange(worker)
    exchange(worker)
    end_all(worker)
    monkeypatch.setattr(Intake, "target", 100)  # it claims more than there are
    exchange(worker)
    assert worker.recorder.in_hand == worker._intake.in_hand == 40


def test_what_has_arrived_starts_before_a_wait(worker: Worker) -> None:
    exchange(worker)
    exchange(worker)
    worker.collect(timeout=0)
    assert worker.recorder.in_hand == 20, "no wait"
    worker.collect(timeout=0.001)
    assert worker.recorder.in_hand == 40


def test_what_was_written_is_in_hand_no_more_and_forgotten_with_the_next_exchange(worker: Worker) -> None:
    exchange(worker)
    exchange(worker)
    end_all(worker)
    exchange(worker)
    written = set(Job.objects.filter(status=Job.Status.SUCCEEDED).values_list("token", flat=True))
    assert worker.recorder.in_hand == 20
    assert len(written) == 20
    assert written < worker.recorder.tokens()
    worker._intake.take_in()
    assert not written & worker.recorder.tokens()


def test_what_has_arrived_starts_though_the_next_exchange_breaks(worker: Worker) -> None:
    exchange(worker)
    exchange(worker)
    end_all(worker)
    with on_stage("administrator") as [administrator]:
        administrator.does(terminate, connection.connection.info.backend_pid)
    with pytest.raises(OperationalError) as broken:
        exchange(worker)
    worker.lost_connection(broken.value, failures=0)
    assert worker.recorder.in_hand == worker._intake.in_hand == 20
    own("default")
    assert end_all(worker) == 20
    exchange(worker)
    assert succeeded() == 40, "what the broken exchange was to write was written by the next"


def test_what_has_arrived_under_a_lost_lease_does_not_start(worker: Worker) -> None:
    exchange(worker)
    exchange(worker)
    worker.lease_lost(worker.identity.id)
    worker.collect(timeout=0)
    assert worker._intake.in_hand == 0
    assert not worker.recorder.tokens()
    assert worker.pool.take_back() == []


def test_what_has_arrived_goes_back_when_the_worker_stops(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange(worker)
    exchange(worker)

    def stop() -> bool:
        worker.request_stop()
        return True

    monkeypatch.setattr(worker, "_register", lambda: None)
    monkeypatch.setattr(worker.pool, "start", lambda: None)
    monkeypatch.setattr(worker, "_turn", stop)
    assert worker.run() == 0
    assert set(Job.objects.values_list("status", "attempt")) == {("READY", 0)}


def test_what_has_arrived_starts_though_something_else_breaks_first(worker: Worker) -> None:
    exchange(worker)
    exchange(worker)
    worker.lost_connection(OperationalError("while a failure was recorded"), failures=0)
    assert worker.recorder.in_hand == worker._intake.in_hand == 40


def test_a_wait_for_work_says_nothing_of_the_speed_of_the_next(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker._intake, "pause", lambda: 0.001)
    speed = worker._intake.speed
    speed._ended, speed._seconds = 0.0, 0.1  # it has stood still for a while
    worker._wait(wanted=8)
    speed.note(100)
    assert speed.in_seconds(1) > 1000, "not 100 in the time of the wait and of what came after"


def test_no_long_job_holds_up_the_exchange(worker: Worker) -> None:
    exchange(worker)
    exchange(worker)
    for held in worker.recorder.running_or_next()[2:]:  # two threads are at long jobs
        held.started, held.ended, held.outcome = worker.vitals.turned_at, worker.vitals.turned_at, NO_RESULT
        worker._inbox.put(held)
    worker._gather()
    assert (worker.recorder.in_hand, worker._intake.in_hand) == (2, 22), "it did not wait: nothing was started before"


def test_who_hears_of_a_success_may_use_the_connection(worker: Worker) -> None:
    seen = []

    def receive(job_id: int, **_: object) -> None:
        wire = connection.connection.pgconn
        assert wire.transaction_status == TransactionStatus.IDLE, "else it would wait for ever"
        seen.append(Job.objects.get(pk=job_id).status)

    exchange(worker)
    exchange(worker)
    signals.succeeded.connect(receive)
    try:
        for _ in range(2):
            end_all(worker)
            exchange(worker)
        worker._intake.take_in()
    finally:
        signals.succeeded.disconnect(receive)
    assert seen == [Job.Status.SUCCEEDED] * 40


@pytest.mark.parametrize("state", ["lost", "in doubt"])
def test_what_has_arrived_does_not_begin_once_the_lease_is_lost_or_in_doubt(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    exchange(worker)
    exchange(worker)
    if state == "lost":
        worker.lease_lost(worker.identity.id)
    else:
        monkeypatch.setattr(type(worker.heartbeat), "is_late", True)
        worker.recorder.flag(None, "lost")  # as the deadlines do
    worker._intake.take_in()
    reasons = [held.flag.reason for held in worker.recorder.running_or_next()]
    assert reasons == ["lost"] * 40


def test_what_was_written_is_forgotten_by_the_next_try_when_memory_was_short(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange(worker)
    exchange(worker)
    end_all(worker)
    exchange(worker)
    with monkeypatch.context() as short:

        def fail(tokens: object) -> None:
            raise MemoryError

        short.setattr(worker.recorder, "_on_settled", fail)
        with pytest.raises(MemoryError):
            worker._intake.take_in()
    worker._intake.take_in()
    assert worker.recorder.in_hand == len(worker.recorder.tokens()) == 40
