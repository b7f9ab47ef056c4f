"""What is done while a statement is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from threading import local

import pytest
from django.db import DataError, connection, transaction

from django_reliable_jobs.engine.preparing import keep_sessions
from django_reliable_jobs.engine.transaction import engine_cursor
from tests.actors import on_stage, somebody_waits_for_a_lock, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

KEY = 7_305


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sessions are kept, as in a worker, so that what is executed is prepared."""
    monkeypatch.setattr("django_reliable_jobs.engine.preparing._thread", local())
    keep_sessions()
    connection.close()
    yield
    connection.close()


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
