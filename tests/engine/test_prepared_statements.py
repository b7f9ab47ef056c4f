"""What was prepared on a session may be gone by the next statement; and not every session may be prepared on."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import ProgrammingError, connection, connections, transaction
from django.test import SimpleTestCase
from django.test.testcases import DatabaseOperationForbidden

from django_reliable_jobs.engine.preparing import OFTEN
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Job
from tests import tasks
from tests.sessions import prepared

pytestmark = pytest.mark.django_db(transaction=True)


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.fixture
def often_used() -> None:
    """A session on which the INSERT of a job is prepared."""
    connection.close()
    for _ in range(OFTEN + 1):
        tasks.effect.enqueue("before")
    assert prepared() == 1
    Job.objects.all().delete()


@pytest.mark.parametrize("reset", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_in_autocommit_a_session_that_was_reset_is_used_on_without_preparing(often_used: None, reset: str) -> None:
    for _ in range(OFTEN + 1):
        execute(reset)
        tasks.effect.enqueue("after")
        assert prepared() == 0
    assert Job.objects.count() == OFTEN + 1


def test_in_a_transaction_a_session_that_was_reset_is_told_once_with_the_way_out(often_used: None) -> None:
    with pytest.raises(ProgrammingError) as caught, transaction.atomic():
        execute("DEALLOCATE ALL")
        tasks.effect.enqueue("lost")
    assert "set PREPARE to 'off'" in str(getattr(caught.value.__cause__, "__notes__", ""))
    for _ in range(OFTEN + 1):
        with transaction.atomic():
            execute("DEALLOCATE ALL")
            tasks.effect.enqueue("after")
    assert [job.args for job in Job.objects.all()] == [["after"]] * (OFTEN + 1)


def test_a_column_that_is_returned_may_change_its_type(often_used: None) -> None:
    execute("CREATE TABLE changed (value int); INSERT INTO changed VALUES (1)")
    try:
        for kind in ("int", "text"):
            execute(f"ALTER TABLE changed ALTER COLUMN value TYPE {kind}")
            with engine_cursor("default") as cursor:
                cursor.execute("SELECT value FROM changed")
                assert [str(value) for (value,) in cursor.fetchall()] == ["1"]
    finally:
        execute("DROP TABLE changed")


def test_a_new_column_of_the_table_of_jobs_disturbs_nobody_in_a_transaction(often_used: None) -> None:
    execute("ALTER TABLE django_reliable_jobs_job ADD COLUMN new text")
    try:
        with transaction.atomic():
            assert tasks.effect.enqueue("after").pk
            assert tasks.unique.enqueue("after").created
    finally:
        execute("ALTER TABLE django_reliable_jobs_job DROP COLUMN new")


@pytest.mark.parametrize("options", [{}, {"reset": lambda session: session.execute("DISCARD ALL")}])
def test_the_sessions_of_a_pool_that_resets_them_are_not_prepared_on(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.close()
    monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "pool", {"min_size": 1, "max_size": 1, **options})
    try:
        for _ in range(2):
            for number in range(OFTEN + 1):
                with transaction.atomic():
                    tasks.effect.enqueue(f"number {number}")
            assert prepared() == (0 if options else 1)
            connection.close()  # gives the session back
        assert Job.objects.count() == 2 * (OFTEN + 1)
    finally:
        connection.close()
        connection.close_pool()


def test_where_django_s_tests_forbid_the_database_it_stays_forbidden(often_used: None) -> None:
    class WithoutDatabase(SimpleTestCase):
        def test(self) -> None:
            tasks.effect.enqueue("forbidden")

    WithoutDatabase.setUpClass()
    try:
        with pytest.raises(DatabaseOperationForbidden):
            WithoutDatabase("test").test()
    finally:
        WithoutDatabase.doClassCleanups()
    assert not Job.objects.exists()


@pytest.mark.parametrize("is_often_used", [False, True])
def test_jobs_can_be_made_in_a_pipeline_of_the_caller(is_often_used: bool, request: pytest.FixtureRequest) -> None:
    connection.close()
    connection.ensure_connection()
    if is_often_used:
        request.getfixturevalue("often_used")
    with connection.connection.pipeline():
        tasks.effect.enqueue("one")
        tasks.effect.enqueue_many([{"name": "many"}] * 3)
        tasks.unique.enqueue("key")
    assert Job.objects.count() == 5
