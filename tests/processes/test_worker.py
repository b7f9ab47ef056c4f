"""What a running worker does with the jobs it finds; real processes on real rows."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from django_reliable_jobs.models import Attempt, Job, Queue, Worker
from django_reliable_jobs.registry import Task
from tests import tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def names_in_order() -> list[str]:
    return list(Effect.objects.order_by("id").values_list("name", flat=True))


def insert_unknown(name: str, **fields: Any) -> Job:
    return Job.objects.create(task=name, max_attempts=5, **fields)


def test_four_processes_run_twenty_thousand_jobs_once_each(start_worker: StartWorker) -> None:
    jobs = tasks.effect.enqueue_many([{"name": str(number)} for number in range(20_000)])
    workers = [start_worker("--burst", ready=False) for _ in range(4)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0, 0], workers[0].output
    runs = Counter(Effect.objects.values_list("job_id", flat=True))
    assert set(runs) == {job.pk for job in jobs}
    assert set(runs.values()) == {1}
    assert Job.objects.filter(status="SUCCEEDED", attempt=1, claims=1).count() == 20_000
    assert len(set(Effect.objects.values_list("pid", flat=True))) == 4
    assert not Worker.objects.exists()


def test_one_thread_starts_jobs_by_priority_then_due_time_then_id(start_worker: StartWorker) -> None:
    now = timezone.now()
    places = [(-priority, -minutes, number) for priority in (5, 0, -5) for minutes in (3, 2, 1) for number in range(20)]
    for place in sorted(places, key=lambda each: each[2]):
        priority, minutes = -place[0], -place[1]
        tasks.effect.using(priority=priority, run_after=now - timedelta(minutes=minutes)).enqueue(str(place))
    assert start_worker("--threads", "1", "--burst").wait() == 0
    assert names_in_order() == [str(place) for place in sorted(places)]


def test_without_queues_all_are_served_in_turn(start_worker: StartWorker) -> None:
    for queue in ("a", "b", "c"):
        tasks.effect.using(queue_name=queue).enqueue_many([{"name": queue}] * 60)
    assert start_worker("--threads", "1", "--burst").wait() == 0
    names = names_in_order()
    assert Counter(names) == {"a": 60, "b": 60, "c": 60}
    assert all(Counter(names[start : start + 3]) == {"a": 1, "b": 1, "c": 1} for start in range(0, 180, 3))


def test_named_queues_without_weights_are_served_strictly_in_order(start_worker: StartWorker) -> None:
    for queue in ("low", "unserved", "high", "middle"):
        tasks.effect.using(queue_name=queue).enqueue_many([{"name": queue}] * 40)
    arguments = ["--queue", "high", "--queue", "middle", "--queue", "low"]
    assert start_worker("--threads", "1", "--burst", *arguments).wait() == 0
    assert names_in_order() == ["high"] * 40 + ["middle"] * 40 + ["low"] * 40
    assert Job.objects.filter(queue_name="unserved", status="READY", claims=0).count() == 40


def test_weights_share_out_the_claims(start_worker: StartWorker) -> None:
    for queue in ("critical", "default"):
        tasks.effect.using(queue_name=queue).enqueue_many([{"name": queue}] * 90)
    arguments = ["--queue", "critical=2", "--queue", "default=1"]
    assert start_worker("--threads", "1", "--burst", *arguments).wait() == 0
    assert Counter(names_in_order()[:90]) == {"critical": 60, "default": 30}


def test_an_excepted_queue_is_left_alone(start_worker: StartWorker) -> None:
    tasks.effect.enqueue("served")
    left = tasks.effect.using(queue_name="reports").enqueue("left")
    assert start_worker("--burst", "--except", "reports").wait() == 0
    assert names_in_order() == ["served"]
    left.refresh_from_db()
    assert (left.status, left.claims) == ("READY", 0)


def test_a_paused_queue_waits_until_it_is_resumed(start_worker: StartWorker) -> None:
    queue = Queue.objects.create(name="default", paused_at=timezone.now())
    job = tasks.effect.enqueue("late")
    other = tasks.effect.using(queue_name="other").enqueue("now")
    start_worker()
    other.wait(timeout=20)
    job.refresh_from_db()
    assert job.status == "READY"
    queue.delete()
    assert job.wait(timeout=20) == "late"


def test_async_tasks_run_on_one_event_loop(start_worker: StartWorker) -> None:
    jobs = tasks.asynchronous.enqueue_many([{"name": str(number)} for number in range(20)])
    worker = start_worker("--burst")
    assert worker.wait() == 0, worker.output
    assert Job.objects.filter(status="SUCCEEDED").count() == 20
    assert set(Effect.objects.values_list("job_id", flat=True)) == {job.pk for job in jobs}
    assert len({job.result for job in Job.objects.all()}) == 1


def test_a_worker_without_the_task_puts_the_job_back_and_says_so(start_worker: StartWorker) -> None:
    job = insert_unknown("a_newer_release.send")
    known = tasks.effect.enqueue("known")
    worker = start_worker("--burst")
    assert worker.wait() == 0
    job.refresh_from_db()
    assert (job.status, job.attempt, job.claims) == ("SCHEDULED", 0, 1)
    assert "a_newer_release.send" in job.reason
    assert "a_newer_release.send" in worker.output
    assert not Attempt.objects.exists()
    known.refresh_from_db()
    assert known.status == "SUCCEEDED"


def test_each_time_it_is_put_back_the_delay_grows(start_worker: StartWorker) -> None:
    job = insert_unknown("a_newer_release.send")
    delays = []
    for _ in range(3):
        assert start_worker("--burst").wait() == 0
        job.refresh_from_db()
        delays.append((job.run_after - job.started_at).total_seconds())
        Job.objects.update(status="READY")
    assert delays[0] < delays[1] < delays[2]


def test_a_queue_that_nobody_serves_is_untouched(start_worker: StartWorker) -> None:
    job = tasks.effect.using(queue_name="nobody").enqueue("x")
    assert start_worker("--burst", "--queue", "default").wait() == 0
    job.refresh_from_db()
    assert (job.status, job.claims, job.run_after) == ("READY", 0, job.created_at)


def test_a_hot_unique_key_does_not_starve_its_job(start_worker: StartWorker) -> None:
    job = tasks.unique.enqueue("hot")
    stop = threading.Event()

    def enqueue_without_a_pause() -> None:
        while not stop.is_set():
            with transaction.atomic():
                tasks.unique.enqueue("hot")
                stop.wait(0.05)  # so that the next one waits for the lock before it is free
        connection.close()

    callers = [threading.Thread(target=enqueue_without_a_pause) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        worker = start_worker().row
        wait_for(lambda: Effect.objects.filter(job_id=job.pk).exists(), what="the hot job")
    finally:
        stop.set()
        for caller in callers:
            caller.join()
    job.refresh_from_db()
    assert worker
    assert job.started_at - worker.started_at < timedelta(seconds=3)


def test_a_long_job_holds_up_no_short_ones(start_worker: StartWorker) -> None:
    long = tasks.slow.enqueue(60)
    start_worker("--threads", "2")
    wait_for(lambda: Effect.objects.exists(), what="the long job to begin")
    short = tasks.effect.enqueue_many([{"name": str(number)} for number in range(200)])
    wait_for(lambda: Job.objects.filter(status="SUCCEEDED").count() == len(short), what="the short jobs")
    long.refresh_from_db()
    assert long.status == "RUNNING"


def test_prefetched_jobs_go_back_when_every_thread_is_stuck(start_worker: StartWorker) -> None:
    tasks.nothing.enqueue_many([{}] * 300)
    tasks.slow.enqueue_many([{"seconds": 60}] * 2)
    after = tasks.effect.enqueue_many([{"name": str(number)} for number in range(50)])
    start_worker("--threads", "2")
    wait_for(lambda: Effect.objects.filter(name="slow begins").count() == 2, what="both threads to be stuck")
    start_worker("--threads", "2")
    done = Job.objects.filter(task="tests.tasks.effect", status="SUCCEEDED", attempt=1)
    wait_for(lambda: done.count() == len(after), what="the jobs given back")


def test_sigterm_lets_running_jobs_end(start_worker: StartWorker) -> None:
    job = tasks.slow.enqueue(1)
    worker = start_worker()
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0, worker.output
    job.refresh_from_db()
    assert (job.status, job.attempt) == ("SUCCEEDED", 1)
    assert not Worker.objects.exists()


def test_sigterm_gives_back_what_does_not_end_in_time(start_worker: StartWorker) -> None:
    job = tasks.slow.enqueue(60)
    waiting = tasks.effect.enqueue_many([{"name": "next"}] * 20)
    worker = start_worker("--threads", "1", "--shutdown-timeout", "0.5")
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=20) == 1
    job.refresh_from_db()
    assert (job.status, job.attempt, job.losses) == ("READY", 0, 0)
    assert job.attempts.get().outcome == "interrupted"
    assert Job.objects.filter(pk__in=[each.pk for each in waiting], status="READY", attempt=0).count() == 20
    assert not Worker.objects.exists()


def test_a_job_that_looks_ends_at_its_safe_point_when_the_worker_stops(start_worker: StartWorker) -> None:
    job = tasks.until_stopping.enqueue()
    worker = start_worker()
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    job.refresh_from_db()
    assert (job.status, job.attempt) == ("READY", 0)
    assert job.attempts.get().outcome == "interrupted"


@pytest.mark.parametrize("task", [tasks.effect, tasks.once])
def test_the_jobs_of_a_killed_worker_are_rescued(start_worker: StartWorker, task: Task[..., Any]) -> None:
    job = tasks.slow.enqueue(60) if task is tasks.effect else tasks.once_slow.enqueue(60)
    victim = start_worker(settings={"LEASE_SECONDS": 2})
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    victim.kill()
    start_worker(settings={"LEASE_SECONDS": 2})
    wait_for(lambda: Attempt.objects.filter(outcome="lost").exists(), what="the rescue")
    job.refresh_from_db()
    if task is tasks.once:
        assert (job.status, job.attempt) == ("DEAD", 1)  # at most once
    else:
        assert job.status in ("READY", "RUNNING")
        assert job.losses == 1
    lost = job.attempts.get()
    assert str(victim.pid) in lost.error_message
    assert lost.number == 1
    wait_for(lambda: not Worker.objects.filter(pid=victim.pid).exists(), what="the lost worker to leave the list")


def test_a_running_job_is_cancelled_from_outside(start_worker: StartWorker) -> None:
    from django_reliable_jobs.engine import lifecycle

    job = tasks.until_stopping.enqueue()
    start_worker(settings={"LISTEN": "off"})
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    assert lifecycle.cancel("default", [job.pk], reason="not needed").asked == [job.pk]
    wait_for(lambda: Job.objects.filter(pk=job.pk, status="CANCELLED").exists(), what="the cancellation")
    job.refresh_from_db()
    assert job.reason == "not needed"
    assert job.attempts.get().outcome == "cancelled"


def test_the_worker_goes_on_after_its_sessions_were_ended(start_worker: StartWorker) -> None:
    start_worker(settings={"POLL_SECONDS": 0.1})
    tasks.effect.enqueue("before").wait(timeout=20)
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert tasks.effect.enqueue("after").wait(timeout=20) == "after"
