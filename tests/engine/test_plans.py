"""Every statement that runs often finds its rows by an index, however many jobs there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs.engine import atomic, claim, exchange, heartbeat, inspection, lifecycle, maintenance, revival
from django_reliable_jobs.engine.claim import Arm
from django_reliable_jobs.engine.lifecycle import Ending, Outcome
from django_reliable_jobs.models import Job, Worker
from tests import tasks
from tests.engine.plans import watched

pytestmark = pytest.mark.django_db

Action = Callable[[], object]

BATCH = 50
RUNNING = 20
KEYS = [{"key": str(number)} for number in range(BATCH)]
ALIVE, LOST = 1, 2  # workers

# Of a hundred jobs, 70 have succeeded, 3 are cancelled, 1 is dead, 12 are scheduled, 10 are ready on three priorities,
# 3 are ready in a paused queue. As many run as a worker holds, and as many ran when theirs was lost.
CROWD = """
INSERT INTO django_reliable_jobs_job (task, kwargs, queue_name, priority, status, created_at, run_after, max_attempts,
       attempt, claims, token, worker_id, first_started_at, started_at, finished_at, unique_hash)
SELECT 'tests.tasks.nothing', jsonb_build_object('number', number),
       CASE WHEN place BETWEEN 96 AND 98 THEN 'held' ELSE 'default' END,
       CASE WHEN place BETWEEN 86 AND 95 THEN mod(number / 100, 3) ELSE 0 END, status, moment,
       CASE status WHEN 'SCHEDULED' THEN now() + (mod(number, 9000) - 100) * interval '1 minute' ELSE moment END,
       5, claims, claims, CASE claims WHEN 1 THEN number END,
       CASE claims WHEN 1 THEN CASE mod(number, %(every)s) WHEN 199 THEN 2 ELSE 1 END END,
       CASE claims WHEN 1 THEN moment END, CASE claims WHEN 1 THEN moment END,
       CASE WHEN status IN ('SUCCEEDED', 'CANCELLED', 'DEAD') THEN moment END,
       CASE WHEN mod(number, 50) = 3 THEN decode(md5(number::text), 'hex') END
  FROM generate_series(1, %(size)s) AS given(number),
       LATERAL (SELECT mod(number, 100) AS place, now() - make_interval(days => 10, secs => number) AS moment) one,
       LATERAL (SELECT CASE WHEN place < 70 THEN 'SUCCEEDED' WHEN place < 73 THEN 'CANCELLED'
                            WHEN place < 74 THEN 'DEAD' WHEN place < 86 THEN 'SCHEDULED' WHEN place < 99 THEN 'READY'
                            WHEN mod(number, %(every)s) IN (99, 199) THEN 'RUNNING' ELSE 'SUCCEEDED' END AS status) two,
       LATERAL (SELECT CASE WHEN status IN ('SUCCEEDED', 'DEAD', 'RUNNING') THEN 1 ELSE 0 END AS claims) three
"""


@pytest.fixture(scope="module", params=[20_000, pytest.param(1_000_000, marks=pytest.mark.heavy)])
def crowd(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: pytest.FixtureRequest
) -> Iterator[int]:
    """Jobs of all kinds; return how many."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(CROWD, {"size": request.param, "every": request.param // RUNNING})
        cursor.execute("INSERT INTO django_reliable_jobs_queue (name, paused_at) VALUES ('held', now())")
        Worker.objects.create(id=ALIVE, host="host", pid=1, threads=8, expires_at="2100-01-01T00:00:00Z")
        Worker.objects.create(id=LOST, host="host", pid=2, threads=8, expires_at="2000-01-01T00:00:00Z")
        cursor.execute("VACUUM ANALYZE")
    yield request.param
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE django_reliable_jobs_job, django_reliable_jobs_worker, django_reliable_jobs_queue CASCADE"
        )
        cursor.execute("VACUUM ANALYZE")


def running(worker_id: int = ALIVE) -> list[Job]:
    return list(Job.objects.filter(status="RUNNING", worker_id=worker_id).order_by("id")[:BATCH])


def endings(outcome: Outcome) -> list[Ending]:
    return [Ending(job.pk, job.token or 0, outcome) for job in running()]


SUCCESS = Outcome(status="SUCCEEDED")
RETRY = Outcome(status="SCHEDULED", attempt="failed", delay=60, error_class="ValueError")


def ids_of(status: str) -> list[int]:
    jobs = Job.objects.filter(status=status, finished_at__isnull=status in ("READY", "SCHEDULED", "RUNNING"))
    return list(jobs.values_list("pk", flat=True)[:BATCH])


def exchange_batch() -> Action:
    ended = endings(SUCCESS)
    arms = [Arm("default", priority, BATCH) for priority in (2, 1, 0)]
    return lambda: exchange.exchange("default", ALIVE, ended, arms, limit=BATCH, free=8)


def end_others() -> Action:
    ended = endings(RETRY)
    return lambda: lifecycle.end("default", ended, worker="host:1")


def succeed_atomically() -> Action:
    job = running()[0]

    def succeed() -> None:
        with atomic.succeeding("default", job.pk, job.token or 0) as record:
            record(None, 1.0)

    return succeed


def sort_out() -> Action:
    ended = endings(SUCCESS)
    return lambda: lifecycle.sort_out("default", ended)


def cancel(status: str) -> Action:
    ids = ids_of(status)
    return lambda: lifecycle.cancel("default", ids, reason="")


def revive() -> Action:
    ids = ids_of("DEAD")
    return lambda: revival.revive("default", ids)


def honour_cancel_requests() -> Action:
    lifecycle.cancel("default", ids_of("RUNNING"), reason="")
    Job.objects.filter(pk__in=ids_of("RUNNING")).update(status="READY")
    return lambda: maintenance.honour_cancel_requests("default")


def cancel_requests() -> Action:
    lifecycle.cancel("default", ids_of("RUNNING"), reason="")
    return lambda: heartbeat.cancel_requests("default", ALIVE)


def claim_passed_over() -> Action:
    [job_id, *_] = ids_of("READY")
    return lambda: claim.claim_passed_over("default", ALIVE, job_id, patience=1)


def claim_next() -> Action:
    *_, highest = sorted(Job.objects.filter(pk__in=ids_of("READY")), key=lambda job: job.priority)
    line = Arm("default", highest.priority, 1)

    def take() -> None:
        assert claim.claim_next("default", ALIVE, line) is not None

    return take


def find_page(**given: Any) -> Action:
    return lambda: list(inspection.find_jobs("default", **given)[:BATCH])


def at_once(action: Action) -> Action:
    """What needs no preparation."""
    return lambda: action


# What is prepared, and returns what is watched.
STATEMENTS: dict[str, Callable[[], Action]] = {
    "exchange": exchange_batch,
    "claim from a paused queue": at_once(
        lambda: exchange.exchange("default", ALIVE, [], [Arm("held", 0, BATCH)], limit=BATCH, free=8)
    ),
    "look": at_once(lambda: claim.look("default")),
    "claim what was passed over": claim_passed_over,
    "claim the next in line": claim_next,
    "find orphans": at_once(lambda: claim.find_orphans("default", ALIVE, {1, 2, 3})),
    "end": end_others,
    "succeed in the task's transaction": succeed_atomically,
    "sort out": sort_out,
    "promote": at_once(lambda: maintenance.promote("default")),
    "rescue": at_once(lambda: maintenance.rescue("default")),
    "prune": at_once(lambda: maintenance.prune("default", batches=1)),
    "honour cancel requests": honour_cancel_requests,
    "read cancel requests": cancel_requests,
    "deregister": at_once(lambda: heartbeat.deregister("default", ALIVE)),
    "cancel what is ready": partial(cancel, "READY"),
    "cancel what is scheduled": partial(cancel, "SCHEDULED"),
    "cancel what runs": partial(cancel, "RUNNING"),
    "revive": revive,
    "enqueue": at_once(lambda: tasks.nothing.enqueue(1)),
    "enqueue many": at_once(lambda: tasks.nothing.enqueue_many([{"a": number} for number in range(BATCH)])),
    "enqueue a duplicate": at_once(lambda: [tasks.unique.enqueue("key"), tasks.unique.enqueue("key")]),
    "enqueue many duplicates": at_once(lambda: [tasks.unique.enqueue_many(KEYS), tasks.unique.enqueue_many(KEYS)]),
    "find the first page": partial(find_page),
    "find a later page": partial(find_page, before=10_000),
    "find the dead": partial(find_page, status="DEAD"),
    "find what runs": partial(find_page, status="RUNNING"),
    "count the dead": at_once(lambda: inspection.dead_by_task("default")),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_it_meets_a_batch_of_jobs_and_not_the_table(name: str, crowd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BATCH", BATCH)
    monkeypatch.setattr(maintenance, "RESCUE_BATCH", BATCH)
    action = STATEMENTS[name]()
    with watched() as plans:
        action()
    assert plans.roots, "nothing was executed"
    # What is about the dead reads all of them: there are as many as people leave there.
    assert plans.faults(most=crowd // 50 if "dead" in name else 2 * BATCH) == []


KEPT = [
    "exchange",
    "claim from a paused queue",
    "claim the next in line",
    "look",
    "find orphans",
    "sort out",
    "enqueue",
]


@pytest.mark.parametrize("name", KEPT)
def test_a_plan_that_is_kept_for_any_parameters_is_as_good(name: str, crowd: int) -> None:
    action = STATEMENTS[name]()
    with watched(prepared=True) as plans:
        action()
    assert plans.roots, "nothing was executed"
    assert plans.faults(most=2 * BATCH) == []


BY_ID = [
    "exchange",
    "end",
    "sort out",
    "succeed in the task's transaction",
    "cancel what is ready",
    "cancel what runs",
    "revive",
]


@pytest.mark.parametrize("name", BY_ID)
def test_what_is_known_by_id_is_found_by_id(name: str, crowd: int) -> None:
    # Few rows of a status make its index look like the shorter way, but its dead entries may be many.
    action = STATEMENTS[name]()
    with watched() as plans:
        action()
    assert {"reliable_job_running", "reliable_job_due", "reliable_job_dead"}.isdisjoint(plans.indexes())


def test_the_crowd_gives_each_statement_something_to_do(crowd: int) -> None:
    worker_jobs = [len(running(worker)) for worker in (ALIVE, LOST)]
    assert min(len(ids_of(status)) for status in ("READY", "SCHEDULED", "DEAD")) == BATCH
    assert worker_jobs == [RUNNING] * 2
    assert maintenance.promote("default") > 0
    assert maintenance.prune("default", batches=1) > 0
    written, claimed = exchange_batch()()  # type: ignore[misc]
    assert len(written) == RUNNING
    assert len(claimed) == BATCH


def test_a_fault_is_seen(crowd: int) -> None:
    with watched() as plans:
        list(Job.objects.filter(task="tests.tasks.unique"))
        list(Job.objects.order_by("-id")[: 2 * BATCH])
        list(Job.objects.order_by("kwargs")[: 2 * BATCH])
    assert "it reads the whole table of jobs" in plans.faults(BATCH)
    assert any("meets" in fault for fault in plans.faults(BATCH))
    assert any("it sorts" in fault for fault in plans.faults(BATCH))


def index_entries(job: Job) -> int:
    """How many indexes hold the row as it is now."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT coalesce(pg_get_expr(indpred, indrelid), 'true') FROM pg_index
                WHERE indrelid = 'django_reliable_jobs_job'::regclass"""
        )
        conditions = [condition for (condition,) in cursor.fetchall()]
        cursor.execute(
            f"SELECT {' + '.join(f'({each})::int' for each in conditions)} FROM django_reliable_jobs_job WHERE id = %s",
            [job.pk],
        )
        return int(cursor.fetchone()[0])


def test_an_ordinary_job_writes_six_index_entries_in_its_life() -> None:
    job = tasks.nothing.using(queue_name="own").enqueue(1)
    written = [index_entries(job)]
    _, [claimed] = exchange.exchange("default", ALIVE, [], [Arm("own", 0, 1)], limit=1, free=1)
    written.append(index_entries(job))
    exchange.exchange("default", ALIVE, [Ending(claimed.id, claimed.token, SUCCESS)])
    job.refresh_from_db()
    written.append(index_entries(job))
    assert job.status == "SUCCEEDED"
    # The row is written three times. At worst no update is HOT, and each writes an entry to every index that holds it.
    assert sum(written) <= 6, written
