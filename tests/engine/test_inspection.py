from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from django_reliable_jobs.engine import inspection, obstacles, queues
from django_reliable_jobs.engine.inspection import QueueStatus
from django_reliable_jobs.models import Job, Queue, Worker
from django_reliable_jobs.testing import at
from tests import tasks
from tests.recorded import run_jobs
from tests.states import a_worker, claim_one

ENDED_JOBS = """
INSERT INTO django_reliable_jobs_job (task, queue_name, status, finished_at, claims)
SELECT 'tests.tasks.nothing', 'default', CASE WHEN n % 100 = 0 THEN 'CANCELLED' ELSE 'SUCCEEDED' END,
       now() - make_interval(secs => n), 1
  FROM generate_series(1, 20000) n
"""


def status_of(queue_name: str) -> QueueStatus:
    """As all are counted; while they are few, a page that counts so many and no more shows the same."""
    counted, again = (
        {each.name: each for each in inspection.queues("default", most=most)}[queue_name] for most in (None, 10)
    )
    assert (counted.oldest is None) == (again.oldest is None)
    assert replace(counted, oldest=None) == replace(again, oldest=None)
    return again


@pytest.mark.django_db
def test_a_queue_shows_its_live_jobs_and_leaves_out_the_ended() -> None:
    tasks.effect.enqueue("ends")
    run_jobs()
    for _ in range(4):
        tasks.nothing.enqueue()
    tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
    claim_one(a_worker())
    default = status_of("default")
    assert (default.ready, default.running, default.scheduled) == (3, 1, 1)


@pytest.mark.django_db
def test_ready_jobs_with_limits_are_counted_and_found_like_others() -> None:
    limited = [Job.objects.create(task="x", **{key: "a"}) for key in ("concurrency_key", "rate_key", "serial_key")]
    plain = tasks.nothing.enqueue()
    default = status_of("default")
    assert default.ready == 4
    assert default.oldest is not None
    found = inspection.find_jobs("default", status="READY")
    assert [job.pk for job in found] == [job.pk for job in reversed([*limited, plain])]


@pytest.mark.django_db
def test_more_than_so_many_are_not_counted_and_that_is_told() -> None:
    now = timezone.now()
    with at(now - timedelta(minutes=5)):
        for priority in (0, 5, 0):
            tasks.nothing.using(queue_name="mail", priority=priority).enqueue()
        Job.objects.create(task="x", queue_name="slow", rate_key="a", run_after=now - timedelta(minutes=5))
    tasks.nothing.using(queue_name="mail", run_after=timedelta(hours=1)).enqueue_many([{}] * 3)
    with at(now):
        found = {each.name: each for each in inspection.queues("default", most=2)}
    mail, slow = found["mail"], found["slow"]
    assert (mail.ready, mail.ready_at_least, mail.scheduled, mail.scheduled_at_least) == (3, True, 3, True)
    assert (slow.ready, slow.ready_at_least, slow.scheduled, slow.scheduled_at_least) == (1, False, 0, True)
    assert mail.oldest == slow.oldest == timedelta(minutes=5)
    assert not any(each.ready_at_least for each in inspection.queues("default", most=3))


@pytest.mark.django_db
def test_a_queue_with_a_limit_shows_it() -> None:
    Queue.objects.create(name="narrow", concurrency=3)
    assert (status_of("narrow").concurrency, status_of("default").concurrency) == (3, None)


@pytest.mark.django_db
def test_a_queue_waits_as_long_as_its_oldest_job_that_could_run() -> None:
    now = timezone.now()
    with at(now):
        tasks.nothing.using(queue_name="ready").enqueue()
        tasks.nothing.using(queue_name="overdue", run_after=timedelta(minutes=1)).enqueue()
        tasks.nothing.using(queue_name="later", run_after=timedelta(hours=1)).enqueue()
    with at(now + timedelta(minutes=5)):
        waits = {name: status_of(name).oldest for name in ("ready", "overdue", "later")}
    assert waits == {"ready": timedelta(minutes=5), "overdue": timedelta(minutes=4), "later": None}


@pytest.mark.django_db
def test_a_pause_is_shown_until_it_runs_out() -> None:
    now = timezone.now()
    resume_at = now + timedelta(hours=1)
    with at(now):
        queues.pause("default", ["default"], resume_at)
        assert (status_of("default").paused_at, status_of("default").resume_at) == (now, resume_at)
    with at(resume_at):
        assert (status_of("default").paused_at, status_of("default").resume_at) == (None, None)


@pytest.mark.django_db
def test_queues_without_jobs_are_shown_if_a_task_a_worker_or_a_pause_names_them() -> None:
    a_worker(serves=["served"])
    queues.pause("default", ["paused", "resumed"])
    queues.resume("default", ["resumed"])
    names = [each.name for each in inspection.queues("default")]
    assert {"default", "served", "paused"} <= set(names)
    assert "resumed" not in names
    assert names == sorted(names)


@pytest.mark.django_db
def test_only_workers_that_claim_count_as_serving_a_queue() -> None:
    a_worker(1)
    a_worker(2, serves=["default", "mail"])
    a_worker(3, serves=["mail"])
    a_worker(4, excluded=["default"])
    a_worker(5, is_stopping=True)
    a_worker(6, lost_at=Now())
    a_worker(7, expires_at=Now() - timedelta(seconds=1))
    assert status_of("default").workers == 2
    assert status_of("mail").workers == 4


@pytest.mark.django_db
def test_a_worker_shows_what_it_does_and_how_old_its_heartbeat_is() -> None:
    working, idle = a_worker(1), a_worker(2, heartbeat_at=Now() - timedelta(seconds=9))
    stopping, silent = a_worker(3, is_stopping=True), a_worker(4, expires_at=Now() - timedelta(seconds=1))
    lost = a_worker(5, lost_at=Now())
    tasks.nothing.enqueue()
    claim_one(working)
    shown = {each.id: each for each in inspection.workers("default")}
    states = {each.id: each.state for each in shown.values()}
    assert states == {working: "working", idle: "idle", stopping: "stopping", silent: "silent", lost: "lost"}
    assert [each.running for each in shown.values()] == [1, 0, 0, 0, 0]
    assert timedelta(seconds=9) <= shown[idle].heartbeat_age < timedelta(seconds=60)


@pytest.mark.django_db
def test_dead_letters_are_counted_by_task_most_first() -> None:
    tasks.dies_and_is_buried.enqueue()
    tasks.ends_by.enqueue("fail")
    tasks.ends_by.enqueue("fail")
    tasks.nothing.enqueue()
    run_jobs()
    dead = inspection.dead_by_task("default")
    assert list(dead.items()) == [("tests.tasks.ends_by", 2), ("tests.tasks.dies_and_is_buried", 1)]
    assert inspection.dead_by_task("default", most=2) == dead
    for _ in range(3):
        tasks.ends_by.enqueue("fail")
    run_jobs()
    assert inspection.dead_by_task("default", most=2) == {**dead, "tests.tasks.ends_by": 3}
    assert inspection.dead_by_task("default")["tests.tasks.ends_by"] == 5


@pytest.mark.django_db
def test_jobs_are_found_by_status_queue_and_task_newest_first_and_page_by_page() -> None:
    jobs = [tasks.nothing.enqueue() for _ in range(3)]
    other_task = tasks.effect.enqueue("x")
    other_queue = tasks.nothing.using(queue_name="mail").enqueue()
    scheduled = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
    newest_first = [job.pk for job in reversed(jobs)]

    def ids(**filters: Any) -> list[int]:
        return [job.pk for job in inspection.find_jobs("default", **filters)]

    assert ids() == [scheduled.pk, other_queue.pk, other_task.pk, *newest_first]
    assert ids(status="SCHEDULED") == [scheduled.pk]
    assert ids(queue_name="mail") == [other_queue.pk]
    assert ids(task="tests.tasks.effect") == [other_task.pk]
    assert ids(status="READY", queue_name="default", task="tests.tasks.nothing") == newest_first
    assert ids(status="READY", before=jobs[1].pk) == [jobs[0].pk]


@pytest.mark.django_db
def test_a_list_reads_no_wide_column() -> None:
    tasks.nothing.enqueue()
    [job] = inspection.find_jobs("default")
    assert job.get_deferred_fields() == set(inspection.WIDE_COLUMNS)


@pytest.mark.django_db
@pytest.mark.parametrize("status", Job.Status.values)
def test_jobs_are_found_in_each_status(status: str) -> None:
    moments = {"finished_at": Now()} if status in Job.ENDED else {}
    if status == "RUNNING":
        moments = {"started_at": Now(), "token": 1, "worker_id": 1}
    job = Job.objects.create(task="x", status=status, **moments)
    Job.objects.create(task="x", status="READY" if status != "READY" else "SCHEDULED")
    assert [each.pk for each in inspection.find_jobs("default", status=status)] == [job.pk]


def _plan(statement: str, parameters: Any = None) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}", parameters)
        return "\n".join(line for (line,) in cursor.fetchall())


def _plan_of_list(status: str) -> str:
    return str(inspection.find_jobs("default", status=status)[:20].explain())


QUESTIONS: dict[str, Callable[[], str]] = {
    **{
        f"queues, {name}": lambda statement=statement: _plan(
            statement, {"moment": None, "declared": ["default"], "most": 10}
        )
        for name, statement in (("all", inspection.QUEUES), ("some", inspection.QUEUES_AT_LEAST))
    },  # type: ignore[misc]
    "workers": lambda: str(inspection.with_state(Worker.objects.all()).explain()),
    "dead letters": lambda: _plan(inspection.DEAD_BY_TASK),
    "some dead letters": lambda: _plan(inspection.DEAD_BY_TASK_AT_LEAST, {"most": 10}),
    "place in line": lambda: _plan(
        obstacles.AHEAD, {"queue": "default", "priority": 0, "run_after": timezone.now(), "id": 1, "limit": 10}
    ),
    **{
        f"list {status}": lambda status=status: _plan_of_list(status)
        for status in ("READY", "RUNNING", "SCHEDULED", "DEAD")
    },  # type: ignore[misc]
}


@pytest.mark.django_db
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_about_live_or_dead_jobs_does_not_read_the_history(question: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(ENDED_JOBS)
        cursor.execute("ANALYZE django_reliable_jobs_job")
    plan = QUESTIONS[question]()
    assert "Seq Scan on django_reliable_jobs_job" not in plan, plan
    assert "reliable_jobs_job_pkey" not in plan, plan


@pytest.mark.django_db
def test_the_cancelled_are_found_by_the_index_of_what_did_not_succeed() -> None:
    with connection.cursor() as cursor:
        cursor.execute(ENDED_JOBS)
        cursor.execute("ANALYZE django_reliable_jobs_job")
    assert "reliable_job_not_succeeded" in _plan_of_list("CANCELLED")


@pytest.mark.django_db
def test_the_last_attempts_come_first() -> None:
    job = tasks.fails_until.enqueue(3)
    run_jobs()
    assert [each.number for each in inspection.find_attempts("default", job.pk, limit=10)] == [2, 1]
    assert [each.number for each in inspection.find_attempts("default", job.pk, limit=1)] == [2]


@pytest.mark.django_db
def test_nothing_is_written() -> None:
    a_worker()
    job = tasks.nothing.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
    inspection.queues("default")
    inspection.workers("default")
    inspection.dead_by_task("default")
    inspection.now("default")
    inspection.find_statuses("default", [job.pk])
    obstacles.explain_waiting("default", job)
