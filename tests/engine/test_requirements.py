"""What is said where the tables are not there, or not as this version needs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync
from django.db import ProgrammingError, connection, transaction

from django_reliable_jobs import Batch, emit_event
from django_reliable_jobs.engine.requirements import noting_migrate
from tests import tasks

pytestmark = pytest.mark.django_db

WAY_OUT = "Run: manage.py migrate"


def start_batch() -> None:
    with Batch() as batch:
        batch.enqueue(tasks.effect, "a")


def do_without(statement: str, act: Callable[[], object]) -> ProgrammingError:
    with pytest.raises(ProgrammingError) as raised, transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(statement)
        act()
    return raised.value


@pytest.mark.parametrize(
    ("table", "act"),
    [
        ("job", lambda: tasks.effect.enqueue("a")),
        ("job", lambda: tasks.unique.enqueue("a")),
        ("job", lambda: tasks.effect.enqueue_many([{"name": "a"}])),
        ("job", lambda: async_to_sync(tasks.effect.aenqueue)("a")),
        ("event", lambda: emit_event("a")),
        ("batch", start_batch),
    ],
    ids=["enqueue", "enqueue, unique", "enqueue_many", "aenqueue", "emit_event", "Batch"],
)
def test_without_the_tables_the_error_of_postgresql_says_that_they_are_to_be_migrated(
    table: str, act: Callable[[], object]
) -> None:
    error = do_without(f"ALTER TABLE django_reliable_jobs_{table} RENAME TO hidden", act)
    assert f'relation "django_reliable_jobs_{table}" does not exist' in str(error)
    [note] = error.__notes__
    assert WAY_OUT in note


def test_so_does_that_of_a_column_which_is_not_there_yet() -> None:
    error = do_without(
        "ALTER TABLE django_reliable_jobs_job RENAME max_attempts TO hidden", lambda: tasks.effect.enqueue("a")
    )
    assert WAY_OUT in error.__notes__[0]


def test_an_error_that_is_not_about_our_tables_stays_as_it_is() -> None:
    @noting_migrate
    def act() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM table_of_the_project")

    assert not hasattr(do_without("SELECT 1", act), "__notes__")
