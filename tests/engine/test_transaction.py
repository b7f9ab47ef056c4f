"""The engine's transactions are READ COMMITTED, whatever the server, the role or the project has as its default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections, transaction

from django_reliable_jobs import engine
from django_reliable_jobs.engine import atomic, heartbeat, limits, maintenance, queues
from django_reliable_jobs.engine.preparing import OFTEN
from django_reliable_jobs.engine.transaction import engine_cursor, own, short_transaction
from django_reliable_jobs.models import Job, Limit, Queue, Worker
from tests import tasks
from tests.actors import Actor, on_stage, somebody_waits_for_a_lock, wait_for, wait_until_blocked
from tests.claims import claim, claim_one_as, port_of, succeed
from tests.sessions import prepared
from tests.states import a_worker

pytestmark = pytest.mark.django_db(transaction=True)

LEVELS = ["repeatable read", "serializable"]


def level_in(cursor: Any) -> str:
    cursor.execute("SELECT current_setting('transaction_isolation')")
    return str(cursor.fetchone()[0])


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The default of every session that is opened in the test."""
    escaped = request.param.replace(" ", "\\ ")
    monkeypatch.setitem(
        connections.settings["default"]["OPTIONS"], "options", f"-c default_transaction_isolation={escaped}"
    )
    connection.close()
    yield request.param
    connection.close()


@pytest.fixture
def actors(level: str) -> Iterator[list[Actor]]:
    with on_stage("winner", "loser") as actors:
        yield actors


def test_a_statement_alone_and_a_short_transaction_are_read_committed_and_leave_the_session_as_it_was(
    level: str,
) -> None:
    with engine_cursor("default") as cursor:
        assert level_in(cursor) == "read committed"
    with short_transaction("default") as cursor:
        assert level_in(cursor) == "read committed"
    with connection.cursor() as cursor:
        assert level_in(cursor) == level


def test_inside_a_transaction_of_the_project_the_level_is_the_project_s(level: str) -> None:
    with transaction.atomic(), engine_cursor("default") as cursor:
        assert level_in(cursor) == level
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        with engine_cursor("default") as inner:
            assert level_in(inner) == level
        cursor.execute("COMMIT")


def test_a_caller_that_commits_by_hand_keeps_its_level_and_may_be_idle(level: str) -> None:
    transaction.set_autocommit(False)
    try:
        with connection.cursor() as cursor:
            tasks.effect.enqueue_many([{"name": "first"}])
            assert level_in(cursor) == level
            tasks.effect.enqueue_many([{"name": "after a query"}])
            cursor.execute("SELECT current_setting('idle_in_transaction_session_timeout')")
            assert cursor.fetchone() == ("0",)
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert Job.objects.count() == 2


def test_with_parameters_that_the_server_binds_a_statement_is_read_committed_too(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "server_side_binding", True)
    connection.close()
    with engine_cursor("default") as cursor:
        cursor.execute("SELECT current_setting('transaction_isolation'), %s::int", [1])
        assert cursor.fetchall() == [("read committed", 1)]
    job = tasks.effect.enqueue("bound")
    assert succeed(claim_one_as(1))
    assert job.wait(timeout=20) == "done"


def test_a_connection_of_its_own_is_read_committed_and_prepares_what_it_executes(level: str) -> None:
    own("default")
    for _ in range(2):
        with engine_cursor("default") as cursor:
            cursor.execute("SELECT current_setting('transaction_isolation'), %(given)s::int", {"given": 1})
            assert cursor.fetchall() == [("read committed", 1)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s", ["%transaction_isolation%"]
        )
        assert cursor.fetchone() == (1,)
    connection.close()
    with connection.cursor() as cursor:
        assert level_in(cursor) == level, "another connection is as it was"


def test_what_a_session_of_another_level_executes_often_is_not_prepared(level: str) -> None:
    for _ in range(OFTEN + 2):
        tasks.effect.enqueue("somebody")
    assert prepared() == 0


def test_a_session_of_another_level_is_kept_without_preparing(kept: None, level: str) -> None:
    with engine_cursor("default") as cursor:
        assert level_in(cursor) == "read committed"
    with connection.cursor() as cursor:
        assert level_in(cursor) == level
    assert prepared() == 0


def test_behind_a_pooler_a_connection_stays_as_it_is(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_reliable_jobs.engine.transaction.is_pooled", lambda using: True)
    own("default")
    with engine_cursor("default") as cursor:
        assert level_in(cursor) == "read committed"
    with connection.cursor() as cursor:
        assert level_in(cursor) == level
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        assert cursor.fetchone() == (0,)


def test_the_engine_opens_no_cursor_of_which_the_level_is_not_known() -> None:
    for path in Path(engine.__file__).parent.glob("*.py"):
        if path.name != "transaction.py":
            assert ".cursor(" not in path.read_text(), path.name


# --- every statement that the processes send by itself, when another session changed its row a moment before


def _a_claimed_job() -> Any:
    tasks.nothing.enqueue()
    return claim_one_as(1)


def _claims() -> Callable[[], bool]:
    tasks.nothing.enqueue()
    worker = a_worker(1)
    return lambda: len(claim(worker)) == 1


def _records() -> Callable[[], bool]:
    job = _a_claimed_job()
    return lambda: succeed(job)


def _saves_checkpoint() -> Callable[[], bool]:
    job = _a_claimed_job()
    port = port_of(job)

    def save() -> bool:
        port.save("cursor", 7)
        return bool(port.load("cursor", None) == 7)

    return save


def _reads_back() -> Callable[[], bool]:
    job = _a_claimed_job()
    succeed(job)
    return lambda: atomic.was_recorded("default", job.id, job.token)


def _promotes() -> Callable[[], bool]:
    tasks.nothing.enqueue()
    Job.objects.update(status="SCHEDULED")
    return lambda: maintenance.promote("default") == 1


def _prunes() -> Callable[[], bool]:
    succeed(_a_claimed_job())
    Job.objects.update(finished_at="2020-01-01T00:00:00Z")
    return lambda: maintenance.prune("default") == 1


def _resumes_queues() -> Callable[[], bool]:
    Queue.objects.create(name="paused", paused_at="2020-01-01T00:00:00Z", resume_at="2020-01-02T00:00:00Z")
    return lambda: maintenance.resume_queues("default") == 1


def _pauses() -> Callable[[], bool]:
    Queue.objects.create(name="default")
    return lambda: queues.pause("default", ["default"]).paused == ["default"]


def _declares_limits() -> Callable[[], bool]:
    limits.declare("default")
    return lambda: limits.declare("default") is None


def _of_worker(write: Callable[[int], Any]) -> Callable[[], Callable[[], bool]]:
    def prepare() -> Callable[[], bool]:
        worker = a_worker(1)
        return lambda: write(worker) in (True, None)

    return prepare


STATEMENTS = {
    "claim": _claims,
    "success": _records,
    "checkpoint": _saves_checkpoint,
    "read back": _reads_back,
    "promotion": _promotes,
    "pruning": _prunes,
    "resumption": _resumes_queues,
    "pause": _pauses,
    "limits": _declares_limits,
    "renewal": _of_worker(lambda worker: heartbeat.renew("default", worker)),
    "idleness": _of_worker(lambda worker: heartbeat.mark_idle("default", worker, idle=True)),
    "stopping": _of_worker(lambda worker: heartbeat.mark_stopping("default", worker)),
    "departure": _of_worker(lambda worker: heartbeat.deregister("default", worker)),
}


COLUMNS = {Job: "priority", Worker: "threads", Queue: "name", Limit: "name"}


def write_every_row_anew() -> None:
    """Put each row in a new version, behind a lock that a statement meets when it has its snapshot."""
    tables = {model._meta.db_table: column for model, column in COLUMNS.items()}
    with connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        for table, column in tables.items():
            cursor.execute(f"UPDATE {table} SET {column} = {column}")


@pytest.mark.parametrize("prepare", STATEMENTS.values(), ids=STATEMENTS)
def test_a_statement_that_comes_second_waits_and_then_works_on_what_the_first_has_written(
    actors: list[Actor], prepare: Callable[[], Callable[[], bool]]
) -> None:
    winner, loser = actors
    statement = prepare()
    winner.begins()
    winner.does(write_every_row_anew)
    second = loser.starts(statement)
    wait_for(somebody_waits_for_a_lock, what="the second to have begun")  # perhaps on a connection of its own
    winner.commits()
    assert second.result(timeout=60)


def test_a_duplicate_is_found_in_autocommit_though_its_enqueuer_commits_in_between(actors: list[Actor]) -> None:
    winner, loser = actors
    winner.begins()
    first = winner.does(tasks.unique.enqueue, "key")
    second = loser.starts(tasks.unique.enqueue, "key")
    wait_until_blocked(loser)
    winner.commits()
    assert (second.result(timeout=60), second.result().created) == (first, False)


def test_of_two_that_enqueue_the_same_keys_the_second_gets_the_jobs_of_the_first(actors: list[Actor]) -> None:
    winner, loser = actors
    calls = [{"key": key} for key in ("a", "b")]
    winner.begins()
    first = winner.does(tasks.unique.enqueue_many, calls)
    second = loser.starts(tasks.unique.enqueue_many, calls)
    wait_until_blocked(loser)
    winner.commits()
    assert second.result(timeout=60) == first
