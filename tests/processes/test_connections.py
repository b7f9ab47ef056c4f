"""Connections of a worker: how many, for how long, and what is lost when they are cut at the worst moment."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from django.db import connection
from django.db.models.functions import Now

from django_reliable_jobs.engine import lifecycle
from django_reliable_jobs.models import Attempt, Job, Worker
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.gates import open_gate, wait_at_gate
from tests.models import Effect
from tests.processes.test_hostile_jobs import assert_all_threads_work
from tests.proxy import Cut, Proxy
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

QUICK = {"POLL_SECONDS": 0.2}
PLAIN = {**QUICK, "PREPARE": "off"}  # each message carries its SQL


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


class CommitOf:
    """The first COMMIT after a statement that contains `text`."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._is_near = False

    def __call__(self, message: bytes) -> bool:
        self._is_near = self._is_near or self._text in message
        return self._is_near and message.startswith(b"Q") and message[5:].startswith(b"COMMIT")


def statement(text: bytes) -> Callable[[bytes], bool]:
    return lambda message: text in message


SUCCESS_HERE = b"SET status = 'SUCCEEDED', result = "  # a value, or in a prepared statement its number
EXCHANGE = b"succeeded AS ("
END = b"INSERT INTO django_reliable_jobs_attempt"


def assert_done_once(job: Job, *, outcomes: list[str]) -> None:
    job.refresh_from_db()
    assert (job.status, job.losses, job.claims) == ("SUCCEEDED", 0, 1 + len(outcomes))
    assert [attempt.outcome for attempt in job.attempts.all()] == outcomes


def wait_for_cut(cut: Cut) -> None:
    assert cut.happened.wait(60), "the message that was to be cut did not come"


@pytest.mark.parametrize(
    ("moment", "prepare"),
    [
        ("after the commit", "auto"),
        ("after the commit", "off"),
        ("before the commit", "auto"),
        ("before the commit", "off"),
        ("after the last statement", "off"),
    ],
)
def test_an_atomic_job_whose_connection_is_cut_is_done_once(
    start_worker: StartWorker, proxy: Proxy, tmp_path: Path, moment: str, prepare: str
) -> None:
    job = interrupted_tasks.atomic_after_gate.enqueue(str(tmp_path))
    worker = start_worker(settings={**QUICK, "PREPARE": prepare}, environment=proxy.environment)
    wait_at_gate(tmp_path)
    match moment:
        case "after the commit":
            cut = proxy.cut_after(CommitOf(SUCCESS_HERE))
        case "before the commit":
            cut = proxy.cut_before(CommitOf(SUCCESS_HERE))
        case _:
            cut = proxy.cut_after(statement(SUCCESS_HERE))
    open_gate(tmp_path)
    wait_for_cut(cut)
    assert job.wait(timeout=20) == "atomic"
    assert_done_once(job, outcomes=[] if moment == "after the commit" else ["failed"])
    assert Effect.objects.count() == 1
    assert (f"job {job.pk} " in worker.output) is (moment != "after the commit"), "a success is not told as a failure"


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize("ending", ["success", "failure"])
def test_an_end_whose_answer_is_cut_is_recorded_once(
    start_worker: StartWorker, proxy: Proxy, tmp_path: Path, ending: str, reached: bool
) -> None:
    job = interrupted_tasks.after_gate.enqueue(str(tmp_path), "gate", ending)
    start_worker(settings=PLAIN, environment=proxy.environment)
    wait_at_gate(tmp_path)
    is_meant = statement(EXCHANGE) if ending == "success" else CommitOf(END)
    cut = proxy.cut_after(is_meant) if reached else proxy.cut_before(is_meant)
    open_gate(tmp_path)
    wait_for_cut(cut)
    if ending == "failure":
        wait_for(lambda: Job.objects.filter(pk=job.pk, status="DEAD").exists(), what="three attempts")
        job.refresh_from_db()
        assert [attempt.number for attempt in job.attempts.all()] == [1, 2, 3]
        assert (job.claims, Effect.objects.count()) == (3, 3)
    else:
        job.wait(timeout=20)
        assert_done_once(job, outcomes=[])
        assert Effect.objects.count() == 1


def test_a_claim_whose_answer_is_cut_is_run_once_by_the_worker_that_claimed(
    start_worker: StartWorker, proxy: Proxy
) -> None:
    start_worker(settings=PLAIN, environment=proxy.environment)
    wait_for(lambda: Worker.objects.filter(is_idle=True).exists(), what="the worker to be idle")
    cut = proxy.cut_after(statement(EXCHANGE))
    jobs = tasks.effect.enqueue_many([{"name": str(number)} for number in range(5)])
    wait_for_cut(cut)
    for job in jobs:
        job.wait(timeout=20)
        assert_done_once(job, outcomes=[])
    assert Effect.objects.count() == 5


def test_a_claim_that_arrives_when_nobody_waits_for_it_any_more_is_run(start_worker: StartWorker) -> None:
    worker = start_worker(settings=QUICK, environment={"TESTS_CONSTANTS": json.dumps({"intake.ORPHAN_SECONDS": 1})})
    tasks.effect.enqueue("before").wait(timeout=20)
    row = worker.row
    assert row is not None
    [job] = tasks.effect.using(queue_name="late").enqueue_many([{"name": "late"}])
    Job.objects.filter(pk=job.pk).update(  # as the claim does
        status="RUNNING", attempt=1, claims=1, token=7, worker_id=row.pk, started_at=Now(), first_started_at=Now()
    )
    assert job.wait(timeout=20) == "late"
    assert_done_once(job, outcomes=[])


def test_a_registration_whose_answer_is_cut_is_made_once(start_worker: StartWorker, proxy: Proxy) -> None:
    cut = proxy.cut_after(statement(b"INSERT INTO django_reliable_jobs_worker"))
    worker = start_worker(settings=QUICK, environment=proxy.environment)
    wait_for_cut(cut)
    assert tasks.effect.enqueue("after").wait(timeout=20) == "after"
    assert Worker.objects.get().pid == worker.pid


def test_a_way_that_swallows_everything_costs_the_lease_and_nothing_else(
    start_worker: StartWorker, proxy: Proxy, tmp_path: Path
) -> None:
    settings = {"POLL_SECONDS": 0.2, "LEASE_SECONDS": 3}
    job = interrupted_tasks.write_atomically_after_gate.enqueue(str(tmp_path))
    cut_off = start_worker(settings=settings, environment=proxy.environment)
    old = cut_off.row
    assert old is not None
    wait_at_gate(tmp_path)
    proxy.passes.clear()
    other = start_worker(settings=settings)
    assert job.wait(timeout=20) == "claim 2"
    open_gate(tmp_path)
    proxy.passes.set()
    wait_for(lambda: (row := cut_off.row) is not None and row.pk != old.pk, what="the other worker to start over")
    other.kill()
    tasks.effect.enqueue("after").wait(timeout=20)
    assert list(Effect.objects.order_by("id").values_list("name", flat=True)) == ["claim 2", "after"]
    assert [attempt.outcome for attempt in job.attempts.all()] == ["lost"]


def test_connections_that_died_unnoticed_are_given_up_and_the_worker_goes_on(
    start_worker: StartWorker, proxy: Proxy, tmp_path: Path
) -> None:
    job = interrupted_tasks.for_long.enqueue("queries")
    settings = {"POLL_SECONDS": 0.2, "LEASE_SECONDS": 2}
    sooner = {"deadlines.INTERRUPT_AFTER": 1.0, "deadlines.CUT_AFTER": 2.0}
    environment = {**proxy.environment, "TESTS_CONSTANTS": json.dumps(sooner)}
    worker = start_worker("--threads", "2", settings=settings, environment=environment)
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    proxy.freeze()
    assert tasks.effect.enqueue("after").wait(timeout=30) == "after"
    lifecycle.cancel("default", [job.pk], reason="not needed")
    wait_for(lambda: Job.objects.filter(pk=job.pk, status="CANCELLED").exists(), what="the end of the frozen job")
    assert_all_threads_work(2, tmp_path)
    assert not worker.has_ended


def test_a_worker_whose_connections_died_unnoticed_stops_in_time(start_worker: StartWorker, proxy: Proxy) -> None:
    tasks.slow.enqueue(60)
    sooner = {"worker.STOPPING_PATIENCE": 1.0, "worker.PARTS_SECONDS": 1.0}
    environment = {**proxy.environment, "TESTS_CONSTANTS": json.dumps(sooner)}
    worker = start_worker("--shutdown-timeout", "2", environment=environment)
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    proxy.freeze()
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=50) == 1


# --- the life of connections


def sessions() -> set[int]:
    """Return the server's processes that serve others than the test."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in cursor.fetchall()}


def test_a_worker_keeps_its_connections_and_no_more(start_worker: StartWorker, tmp_path: Path) -> None:
    start_worker("--threads", "8")
    assert_all_threads_work(8, tmp_path)
    wait_for(lambda: len(sessions()) == 8 + 4, what="one for each thread that runs jobs, and four of its own")
    before = sessions()
    interrupted_tasks.plain_effect.enqueue_many([{"name": "x", "seconds": 0.005}] * 500)
    wait_for(lambda: not Job.objects.exclude(status="SUCCEEDED").exists(), what="the jobs")
    assert sessions() == before


@pytest.mark.heavy
def test_two_hundred_thousand_jobs_leave_memory_and_connections_as_they_were(start_worker: StartWorker) -> None:
    worker = start_worker()
    process = psutil.Process(worker.pid)
    sizes, counts = [], []
    for number in range(1, 11):
        for _ in range(4):
            tasks.nothing.enqueue_many([{}] * 5000)
        done = Job.objects.filter(status="SUCCEEDED")
        wait_for(lambda: done.count() == 20_000 * number, what=f"{20_000 * number} jobs", timeout=300)  # noqa: B023
        sizes.append(process.memory_info().rss)
        counts.append(len(sessions()))
    assert sizes[-1] <= 1.1 * sizes[0], sizes
    assert len(set(counts)) == 1, counts


def test_a_database_that_is_far_away_does_not_starve_the_threads(start_worker: StartWorker, proxy: Proxy) -> None:
    proxy.round_trip = 0.05
    tasks.nothing.enqueue_many([{}] * 3000)
    assert start_worker("--threads", "8", "--burst", environment=proxy.environment).wait(timeout=120) == 0
    assert Job.objects.filter(status="SUCCEEDED").count() == 3000
    # As many as end during a round trip are claimed by the next: claims grow instead of staying at one for each thread.
    assert proxy.answers < 200


def test_the_log_of_queries_does_not_grow(start_worker: StartWorker) -> None:
    start_worker("--threads", "1", environment={"DEBUG": "true"})
    tasks.effect.enqueue_many([{"name": "x"}] * 200)
    assert interrupted_tasks.queries_in_log.using(priority=-1).enqueue().wait(timeout=20) == 1


def test_sessions_that_are_ended_at_any_moment_lose_nothing_and_double_no_atomic_effect(
    start_worker: StartWorker, proxy: Proxy
) -> None:
    chance = random.Random(7)
    names = [str(number) for number in range(250)]
    interrupted_tasks.atomic_effect.enqueue_many([{"name": name, "seconds": 0.02} for name in names])
    interrupted_tasks.in_parts.enqueue_many([{"name": name, "seconds": 0.02} for name in names])
    worker = start_worker("--threads", "8", settings=QUICK, environment=proxy.environment)
    unended = Job.objects.exclude(status="SUCCEEDED")
    for number in range(20):
        threading.Event().wait(chance.uniform(0, 0.25))  # the moment is chance, and nothing is waited for
        if number % 2:
            proxy.cut_all()
        else:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", [list(sessions())])
    assert unended.exists(), "the sessions were ended while it worked"
    wait_for(lambda: not unended.exists(), what="all to end", timeout=120)
    done = Effect.objects.values_list("name", flat=True)
    assert sorted(done) == sorted([*names, *(f"{name}, part {part}" for name in names for part in range(3))])
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"failed"}
    assert not worker.has_ended
    wait_for(lambda: len(sessions()) <= 8 + 4, what="the server to have ended what was cut")
