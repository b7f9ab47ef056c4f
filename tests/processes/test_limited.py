"""What running workers do with limited jobs; real processes on real rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import psutil
from django.db import connection, transaction
from django.utils import timezone

from django_reliable_jobs.engine import limits
from django_reliable_jobs.models import Job, Limit, Queue, Worker
from tests import limited_tasks, tasks
from tests.actors import wait_for
from tests.gates import open_gate, wait_at_gate
from tests.limit_guard import witnessed
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def succeeded(**filters: object) -> int:
    return Job.objects.filter(status="SUCCEEDED", **filters).count()


def names_in_order() -> list[str]:
    return list(Effect.objects.order_by("id").values_list("name", flat=True))


def starts_of(task: str) -> list[datetime]:
    return list(Job.objects.filter(task=task).order_by("started_at").values_list("started_at", flat=True))


def test_jobs_of_one_key_run_one_after_another_in_order(start_worker: StartWorker) -> None:
    now = timezone.now()
    for priority, minutes in [(priority, minutes) for priority in (0, 5, -5) for minutes in (1, 3, 2)]:
        placed = limited_tasks.one_at_a_time.using(priority=priority, run_after=now - timedelta(minutes=minutes))
        placed.enqueue(f"{priority} {minutes}", 0.01)
    with witnessed("concurrency_key") as witness:
        assert start_worker("--threads", "4", "--burst").wait() == 0
        assert (witness.most_running(), witness.starts()) == (1, 9)
    assert names_in_order() == [f"{priority} {minutes}" for priority in (5, 0, -5) for minutes in (3, 2, 1)]


def test_the_next_job_of_a_key_starts_as_soon_as_its_place_is_free(start_worker: StartWorker) -> None:
    limited_tasks.one_at_a_time.enqueue_many([{"name": str(number), "seconds": 0.1} for number in range(10)])
    start_worker(settings={"POLL_SECONDS": 60})
    wait_for(lambda: succeeded() == 10, what="ten jobs of a tenth of a second")
    spans = list(Job.objects.order_by("started_at").values_list("started_at", "finished_at"))
    gaps = [(later[0] - earlier[1]).total_seconds() for earlier, later in pairwise(spans)]
    assert max(gaps) < 30  # a poll would come after 60 s


def test_an_enqueued_job_of_a_free_key_starts_at_once(start_worker: StartWorker) -> None:
    start_worker(settings={"POLL_SECONDS": 60})
    wait_for(lambda: Worker.objects.filter(is_idle=True).exists(), what="the worker to be idle")
    limited_tasks.one_at_a_time.enqueue("woken").wait(timeout=30)
    limited_tasks.one_at_a_time.enqueue("woken again").wait(timeout=30)


def test_a_job_of_another_key_does_not_wait_behind_a_blocked_one(start_worker: StartWorker) -> None:
    limited_tasks.per_customer.enqueue(1, 120)
    limited_tasks.per_customer.enqueue_many([{"customer_id": 1}] * 1000)
    start_worker("--threads", "2", settings={"POLL_SECONDS": 60})
    wait_for(lambda: Job.objects.filter(status="RUNNING").exists(), what="the first customer's job to run")
    limited_tasks.per_customer.enqueue(2).wait(timeout=30)
    assert Job.objects.filter(status="READY", concurrency_key__endswith="customer_id=1").count() == 1000


def test_limited_and_ordinary_jobs_share_the_threads_and_neither_starves(start_worker: StartWorker) -> None:
    tasks.slow.enqueue_many([{"seconds": 0.02, "name": "ordinary"}] * 200)
    limited_tasks.crm_read.enqueue_many([{"name": "limited", "seconds": 0.02}] * 200)
    start_worker("--threads", "2")
    wait_for(lambda: succeeded() >= 100, what="a hundred jobs")
    for task in ("tests.tasks.slow", "tests.limited_tasks.crm_read"):
        assert succeeded(task=task) > 20, task


def test_one_thread_takes_limited_and_ordinary_jobs_in_turn(start_worker: StartWorker) -> None:
    tasks.slow.enqueue_many([{"seconds": 0.1, "name": "ordinary"}] * 10)
    limited_tasks.one_at_a_time.enqueue_many([{"name": "limited", "seconds": 0.1}] * 10)
    start_worker("--threads", "1")
    wait_for(lambda: succeeded() >= 10, what="ten jobs")
    for task in ("tests.tasks.slow", "tests.limited_tasks.one_at_a_time"):
        assert succeeded(task=task) >= 3, task


def test_a_limited_job_does_not_overtake_an_ordinary_one_of_higher_priority(start_worker: StartWorker) -> None:
    limited_tasks.one_at_a_time.enqueue("limited")
    tasks.effect.using(priority=1).enqueue_many([{"name": "ordinary"}] * 20)
    limited_tasks.crm_read.using(priority=2).enqueue("urgent")
    assert start_worker("--threads", "1", "--burst").wait() == 0
    assert names_in_order() == ["urgent", *["ordinary"] * 20, "limited"]


def test_queues_named_without_weights_are_served_strictly_in_order_with_limits_too(start_worker: StartWorker) -> None:
    for queue in ("low", "high"):
        limited_tasks.crm_read.using(queue_name=queue).enqueue_many([{"name": f"limited {queue}"}] * 5)
        tasks.effect.using(queue_name=queue).enqueue_many([{"name": queue}] * 5)
    assert start_worker("--threads", "1", "--burst", "--queue", "high", "--queue", "low").wait() == 0
    names = names_in_order()
    assert sorted(names[:10]) == ["high"] * 5 + ["limited high"] * 5
    assert sorted(names[10:]) == ["limited low"] * 5 + ["low"] * 5


def test_a_limit_is_shared_by_tasks_in_different_queues(start_worker: StartWorker) -> None:
    limited_tasks.crm_read.enqueue_many([{"seconds": 0.01}] * 30)
    limited_tasks.crm_export.enqueue_many([{"seconds": 0.01}] * 30)
    with witnessed("concurrency_key") as witness:
        workers = [start_worker("--burst", "--queue", queue, ready=False) for queue in ("default", "exports")]
        assert [worker.wait() for worker in workers] == [0, 0]
        assert witness.most_running() == 2
    assert succeeded() == 60


def test_starts_keep_to_their_rate(start_worker: StartWorker) -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 4)
    assert start_worker("--burst", settings={"POLL_SECONDS": 60}).wait() == 0
    starts = starts_of("tests.limited_tasks.one_a_second")
    seconds = [(start - starts[0]).total_seconds() for start in starts]
    assert seconds[1] < 0.5  # the burst: one claim
    assert 0.9 < seconds[2] < 30  # it wakes for the moment: a poll would come after 60 s
    assert 1.9 < seconds[3] < 60


def test_a_worker_that_waits_for_a_rate_or_a_place_looks_seldom(start_worker: StartWorker) -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 3)
    limited_tasks.one_at_a_time.enqueue_many([{"seconds": 3}] * 2)
    worker = start_worker()
    wait_for(lambda: succeeded() >= 2, what="the burst")
    used, since = psutil.Process(worker.pid).cpu_times().user, time.monotonic()
    wait_for(lambda: succeeded() == 5, what="the rate and the place")
    assert psutil.Process(worker.pid).cpu_times().user - used < (time.monotonic() - since) / 4


def scans_of_limited_jobs() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'reliable_job_limited'")
        return int(cursor.fetchone()[0])


def test_many_workers_that_wait_for_one_rate_do_not_all_come_at_each_moment(start_worker: StartWorker) -> None:
    for _ in range(4):
        start_worker()
    wait_for(lambda: Worker.objects.filter(is_idle=True).count() == 4, what="four idle workers")
    limited_tasks.ten_a_second.enqueue_many([{}] * 60)
    wait_for(lambda: succeeded() >= 15, what="the burst and some")
    before = scans_of_limited_jobs()
    wait_for(lambda: succeeded() == 60, what="the others, ten a second")
    assert scans_of_limited_jobs() - before < 45 * 25  # four that hammer make thousands


def enqueue_at_gates(folder: Path, count: int) -> list[Job]:
    """Of these jobs three may run at a time, and each stands at a gate that has its number."""
    calls = [{"folder": str(folder), "gate": str(number)} for number in range(count)]
    return limited_tasks.three_at_a_time.enqueue_many(calls)


def pass_gates(folder: Path, numbers: range) -> None:
    for number in numbers:
        wait_at_gate(folder, str(number))
        open_gate(folder, str(number))


def test_what_is_over_the_limit_uses_no_attempt_and_is_not_claimed(start_worker: StartWorker, tmp_path: Path) -> None:
    start_worker("--threads", "4")
    start_worker("--threads", "4")
    *_, fourth = enqueue_at_gates(tmp_path, 4)
    for number in range(3):
        wait_at_gate(tmp_path, str(number))
    fourth.refresh_from_db()
    assert (fourth.status, fourth.claims, fourth.attempt) == ("READY", 0, 0)
    pass_gates(tmp_path, range(4))
    fourth.wait(timeout=60)
    assert (fourth.status, fourth.claims, fourth.attempt) == ("SUCCEEDED", 1, 1)


def test_an_override_is_in_force_at_once_and_a_lowered_limit_lets_running_jobs_end(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    start_worker("--threads", "6")
    wait_for(lambda: Limit.objects.filter(name="tests.limited_tasks.three_at_a_time").exists(), what="the limit")
    name = "tests.limited_tasks.three_at_a_time"
    limits.override("default", "concurrency", name, 5)
    enqueue_at_gates(tmp_path, 12)
    running = Job.objects.filter(status="RUNNING")
    wait_for(lambda: running.count() == 5, what="five to run")
    limits.override("default", "concurrency", name, 1)
    pass_gates(tmp_path, range(5))
    wait_for(lambda: succeeded() == 5, what="the five to end")
    with witnessed("concurrency_key") as witness:
        pass_gates(tmp_path, range(5, 7))
        wait_at_gate(tmp_path, "7")
        assert (succeeded(), running.count(), witness.most_running()) == (7, 1, 1)
        limits.reset("default", "concurrency", name)
        wait_for(lambda: witness.most_running() == 3, what="three to run again")


def test_a_queue_with_a_limit_runs_no_more_jobs_than_that_whatever_their_limits(start_worker: StartWorker) -> None:
    Queue.objects.create(name="default", concurrency=2)
    tasks.slow.enqueue_many([{"seconds": 0.02}] * 30)
    limited_tasks.crm_read.enqueue_many([{"seconds": 0.02}] * 30)
    other = tasks.effect.using(queue_name="other").enqueue("other")
    with witnessed("queue_name") as witness:
        workers = [start_worker("--burst", "--threads", "4", ready=False) for _ in range(2)]
        assert [worker.wait() for worker in workers] == [0, 0]
        assert witness.most_running() == 2
    assert succeeded() == 61
    other.refresh_from_db()
    assert other.status == "SUCCEEDED"


def test_a_burst_leaves_alone_what_no_limit_will_ever_let_start(start_worker: StartWorker) -> None:
    limits.declare("default")
    limits.override("default", "concurrency", "tests.limited_tasks.one_at_a_time", 0)
    limits.override("default", "rate", "tests.limited_tasks.one_a_second", 0, 1)
    limited_tasks.one_at_a_time.enqueue()
    limited_tasks.one_a_second.enqueue()
    tasks.effect.enqueue("ordinary")
    assert start_worker("--burst").wait() == 0
    assert names_in_order() == ["ordinary"]


def test_a_hot_unique_key_does_not_starve_a_limited_job(start_worker: StartWorker) -> None:
    job = limited_tasks.rebuild.enqueue("hot")
    stop = threading.Event()

    def enqueue_without_a_pause() -> None:
        while not stop.is_set():
            with transaction.atomic():
                limited_tasks.rebuild.enqueue("hot")
        connection.close()

    callers = [threading.Thread(target=enqueue_without_a_pause) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        start_worker()
        wait_for(lambda: Effect.objects.filter(job_id=job.pk).exists(), what="the hot job")
    finally:
        stop.set()
        for caller in callers:
            caller.join()


def test_a_job_that_must_not_start_twice_is_claimed_for_a_free_thread_only(start_worker: StartWorker) -> None:
    limited_tasks.once_and_alone.enqueue_many([{"seconds": 0.1}] * 3)
    tasks.nothing.enqueue_many([{}] * 2000)
    start_worker("--threads", "2")
    wait_for(lambda: succeeded() == 2003, what="all jobs")
    assert not Job.objects.filter(task="tests.limited_tasks.once_and_alone", claims__gt=1).exists()


def test_a_job_that_lost_its_worker_is_claimed_alone(start_worker: StartWorker) -> None:
    suspect = limited_tasks.one_at_a_time.enqueue("suspect", 0.5)
    Job.objects.filter(pk=suspect.pk).update(losses=1)
    tasks.slow.enqueue_many([{"seconds": 0.01}] * 20)
    limited_tasks.crm_read.enqueue_many([{"seconds": 0.01}] * 20)
    assert start_worker("--threads", "4", "--burst").wait() == 0
    suspect.refresh_from_db()
    beside = Job.objects.exclude(pk=suspect.pk).filter(
        started_at__lt=suspect.finished_at, finished_at__gt=suspect.started_at
    )
    assert suspect.status == "SUCCEEDED"
    assert not beside.exists()
