"""On which sessions statements are prepared, and what is done while one is on its way."""

from __future__ import annotations

from threading import local
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_reliable_jobs.engine.preparing import OFTEN, keep_sessions
from django_reliable_jobs.engine.transaction import engine_cursor, own
from tests import tasks
from tests.actors import on_stage, somebody_waits_for_a_lock, terminate, wait_for
from tests.sessions import prepared

pytestmark = pytest.mark.django_db(transaction=True)

KEY = 7_305


def test_a_process_that_keeps_its_sessions_prepares_in_a_transaction_of_the_project_too(kept: None) -> None:
    connection.close()
    before = connection.settings_dict["OPTIONS"].get("prepare_threshold")
    with engine_cursor("default") as cursor:
        cursor.execute("SELECT %(given)s::int", {"given": 1})
    with transaction.atomic(), engine_cursor("default") as cursor:
        cursor.execute("SELECT %(given)s::bigint", {"given": 2})
        assert cursor.fetchall() == [(2,)]
    assert prepared() == 2
    assert connection.connection.prepare_threshold == before, "what the project executes is not prepared"


def test_what_a_session_of_the_project_executes_often_is_prepared() -> None:
    connection.close()
    counts = []
    for number in range(OFTEN + 2):
        tasks.effect.enqueue(f"number {number}")
        counts.append(prepared())
    assert counts == [0] * OFTEN + [1, 1]
    with transaction.atomic():
        tasks.effect.enqueue("in a transaction")
    assert prepared() == 1, "the same one"


def test_a_project_that_logs_its_statements_sees_one_for_each_job() -> None:
    connection.close()
    for number in range(OFTEN + 2):
        with CaptureQueriesContext(connection) as captured:
            tasks.effect.enqueue(f"number {number}")
        assert [f"number {number}" in query["sql"] for query in captured.captured_queries] == [True]


def test_a_connection_that_breaks_while_it_is_looked_at_is_told_as_django_tells_it(kept: None) -> None:
    connection.close()
    connection.connect()
    pid = connection.connection.info.backend_pid
    with on_stage("other") as [other]:
        other.does(terminate, pid)
    with pytest.raises(OperationalError), engine_cursor("default") as cursor:
        cursor.execute("SELECT 1")
    connection.close()


def test_nothing_is_prepared_where_the_settings_say_so(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "PREPARE": "off"}
    monkeypatch.setattr("django_reliable_jobs.engine.preparing._thread", local())
    connection.close()
    keep_sessions()
    own("default")
    with engine_cursor("default") as cursor:
        cursor.execute("SELECT %(given)s::int", {"given": 1})
    assert prepared() == 0


@pytest.mark.parametrize("execution", ["the first", "a later one"])
def test_it_is_called_when_the_statement_has_reached_the_server_and_the_answer_has_not_come(
    kept: None, execution: str
) -> None:
    statement = "SELECT pg_advisory_xact_lock(%(key)s) IS NOT NULL"
    if execution == "a later one":
        with engine_cursor("default") as cursor:
            cursor.execute(statement, {"key": KEY})
    calls = []
    with on_stage("holder") as [holder]:
        holder.begins()
        holder.does(lambda: connection.cursor().execute("SELECT pg_advisory_xact_lock(%s)", [KEY]))

        def let_go() -> None:
            calls.append("called")
            if execution == "a later one":  # the first waits for its plan before it waits for the lock
                wait_for(lambda: holder.does(somebody_waits_for_a_lock), what="the statement")
            holder.rolls_back()

        with engine_cursor("default", about_to_wait=let_go) as cursor:
            cursor.execute(statement, {"key": KEY})
            assert cursor.fetchall() == [(True,)]
    assert calls == ["called"]


def test_an_error_in_it_comes_after_the_statement_and_the_connection_goes_on(kept: None) -> None:
    def fail() -> None:
        raise MemoryError("nothing left")

    with transaction.atomic():
        with engine_cursor("default", about_to_wait=fail) as cursor, pytest.raises(MemoryError, match="nothing left"):
            cursor.execute("SELECT set_config('application_name', 'was done', false)")
        with engine_cursor("default") as cursor:
            cursor.execute("SELECT current_setting('application_name')")
            assert cursor.fetchall() == [("was done",)]


def test_an_error_of_the_statement_is_the_statements(kept: None) -> None:
    calls = []
    with engine_cursor("default", about_to_wait=lambda: calls.append("called")) as cursor:
        with pytest.raises(DataError):
            cursor.execute("SELECT 1 / %(zero)s::int", {"zero": 0})
        cursor.execute("SELECT 1 / %(zero)s::int", {"zero": 1})
        assert cursor.fetchall() == [(1,)]
    assert calls == ["called"] * 2


def test_where_nothing_is_prepared_it_is_called_all_the_same() -> None:
    connection.close()
    calls = []
    with engine_cursor("default", about_to_wait=lambda: calls.append("called")) as cursor:
        assert calls == ["called"]
        cursor.execute("SELECT 1")
    assert calls == ["called"]
