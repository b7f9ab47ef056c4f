"""Jobs that are cut off at the end of a stop: each is given back with its record, and its attempt is over by then."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection, transaction

from django_reliable_jobs.context import StopFlag, StopReason
from django_reliable_jobs.models import Checkpoint, Job, Schedule
from django_reliable_jobs.processes.execution import NO_RESULT
from django_reliable_jobs.processes.judging import cut_off
from django_reliable_jobs.processes.pool import HeldJob
from django_reliable_jobs.processes.recorder import Recorder
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.claims import claim_one_as, row
from tests.gates import wait_at_gate
from tests.models import Effect, Span
from tests.processes.test_connections import END, CommitOf
from tests.processes.test_stopping import assert_no_job_ran_twice_at_the_same_time
from tests.proxy import Proxy
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

QUICK = {"POLL_SECONDS": 0.2}


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


def test_a_job_whose_own_transaction_holds_its_row_goes_back_with_its_record(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    again = interrupted_tasks.stand_behind_fence.enqueue(str(tmp_path))
    once = interrupted_tasks.hold_fence_open.enqueue("busy", 60)
    worker = start_worker("--shutdown-timeout", "1")
    wait_at_gate(tmp_path)
    wait_for(_is_asleep_in_a_query, what="the other to hold its fence")
    stopped_at = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=50) == 1
    assert time.monotonic() - stopped_at < 30, "the time allowed, and a little for the last writes"
    again.refresh_from_db(), once.refresh_from_db()
    assert (again.status, again.attempt, again.losses) == ("READY", 0, 0)
    assert (once.status, once.attempt, once.losses) == ("DEAD", 1, 0)
    assert "max_attempts=1 allows no second start" in (once.reason or "")
    assert [job.attempts.get().outcome for job in (again, once)] == ["interrupted", "interrupted"]
    assert not Effect.objects.exists() and not Checkpoint.objects.exists(), "what was open was rolled back"
    assert "gave back jobs that still ran: 2" in worker.output


def _is_asleep_in_a_query() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
        return cursor.fetchone() is not None


@pytest.mark.django_db
def test_what_a_thread_says_of_a_job_that_was_cut_is_not_heard() -> None:
    tasks.nothing.enqueue()
    job = claim_one_as(1)
    settled = list[int]()
    recorder = Recorder("default", "host:1", on_settled=settled.extend)
    held = HeldJob(job)
    held.started = time.monotonic()
    recorder.hold([held])
    assert recorder.cut_running() == [held]
    held.ended, held.outcome = time.monotonic(), NO_RESULT
    recorder.add_ended(held)
    assert settled == []
    assert recorder.successes() == []
    recorder.record_others()
    assert (row(job).status, row(job).attempts.get().outcome) == ("READY", "interrupted")
    assert recorder.is_empty
    assert settled == [job.token]


@pytest.mark.django_db
@pytest.mark.parametrize("reason", [None, "shutdown", "cancel", "timeout", "lost"])
def test_a_job_that_is_cut_off_while_it_undoes_goes_on_undoing(reason: StopReason | None) -> None:
    tasks.once.enqueue()
    job = claim_one_as(1)._replace(is_undoing=True)
    flag = StopFlag()
    flag.reason = reason
    outcome = cut_off(job, flag)
    assert (outcome.status, outcome.uses_attempt, outcome.compensation) == ("READY", False, None)


def test_a_worker_that_hears_no_answer_to_what_it_gave_back_goes_on_with_nothing(
    start_worker: StartWorker, proxy: Proxy
) -> None:
    interrupted_tasks.span.enqueue(seconds=90, stubborn=True)
    constants = {"TESTS_CONSTANTS": json.dumps({"shutdown.ANSWER_SECONDS": 1.0})}
    worker = start_worker("--shutdown-timeout", "1", settings=QUICK, environment={**proxy.environment, **constants})
    wait_for(lambda: Span.objects.exists(), what="the job to begin")
    is_commit = CommitOf(END)

    def swallow_the_answer(message: bytes) -> bool:
        if is_commit(message):
            for link in proxy._links:
                link.is_frozen = True
        return False

    proxy.cut_after(swallow_the_answer)
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=50) == 1, "the job would go on for longer"
    job = Job.objects.get()
    assert (job.status, job.attempt, job.attempts.get().outcome) == ("READY", 0, "interrupted")


def test_a_scheduler_that_is_slow_to_stop_is_waited_for_before_jobs_are_given_back(start_worker: StartWorker) -> None:
    interrupted_tasks.span.enqueue(seconds=60, stubborn=True)
    uninterrupted = {"TESTS_CONSTANTS": json.dumps({"deadlines.INTERRUPT_AFTER": 60.0})}
    worker = start_worker("--with-scheduler", "--shutdown-timeout", "0.5", settings=QUICK, environment=uninterrupted)
    wait_for(lambda: Span.objects.exists(), what="the job to begin")
    other = start_worker(settings=QUICK)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {Schedule._meta.db_table} IN ACCESS EXCLUSIVE MODE")
        wait_for(lambda: _somebody_waits_for(Schedule._meta.db_table), what="the scheduler to be held up")
        worker.send(signal.SIGTERM)
        assert worker.wait(timeout=50) == 1
    wait_for(lambda: Span.objects.count() == 2, what="the other worker to take the job over")
    other.kill()
    assert_no_job_ran_twice_at_the_same_time()


def _somebody_waits_for(table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_locks WHERE relation = %s::regclass AND NOT granted", [table])
        return cursor.fetchone() is not None
