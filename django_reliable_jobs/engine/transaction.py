"""The transactions of the engine: READ COMMITTED, whatever the default of the server, the role or the project.

Without a setting of the session, which a transaction pooler would hand to somebody else; but for a connection that is
the engine's own from end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import psycopg
from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.preparing import (
    PreparingCursor,
    can_prepare,
    decide,
    is_decided,
    is_in_transaction,
    told_if_stale,
)
from django_reliable_jobs.engine.requirements import require
from django_reliable_jobs.models import Job

# Until the transaction ends, the server ends a session that sits idle in it for longer than a lease, or sooner if that
# is what is set already: a process that is stopped (SIGSTOP, a frozen machine) holds no row for ever. An SQL
# expression, so that it travels in the statement that takes the lock. Outside a transaction it has no effect.
LIMIT_IDLE = """set_config('idle_in_transaction_session_timeout', ceil(1000 * least(%(lease)s::float8, coalesce(nullif(
    extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval), 0),
    %(lease)s::float8)))::text,
    true)"""

READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"


# By alias, how many blocks of `atomic` were open around the job: in a test, those of the test.
around: ContextVar[Mapping[str, int]] = ContextVar("reliable_jobs_around", default={})  # noqa: B039 - never changed


def open_blocks() -> dict[str, int]:
    """Return how many blocks of `atomic` are open on each connection of this thread."""
    return {each.alias: len(each.atomic_blocks) for each in connections.all(initialized_only=True)}


def is_in_transaction_by_hand(using: str) -> bool:
    """Return whether a transaction is open here that is no `atomic`: autocommit is off, or BEGIN was executed."""
    connection = connections[using]
    if connection.connection is None or connection.in_atomic_block:
        return False
    return not connection.get_autocommit() or is_in_transaction(connection)


def default_database() -> str:
    """Return the alias to which the project's router sends jobs."""
    return router.db_for_write(Job)


@contextmanager
def short_transaction(
    using: str, *, savepoint: bool = True, lock_timeout: float | None = None, statement_timeout: float | None = None
) -> Iterator[CursorWrapper]:
    """Run a block in one READ COMMITTED transaction; inside another: in a savepoint, or as a part of it.

    The timeouts, in seconds, hold in a transaction of its own only.
    """
    connection = connections[using]
    require(connection)
    outermost = connection.get_autocommit()  # it is off in `atomic`, and where the caller commits by hand
    with transaction.atomic(using=using, savepoint=savepoint), connection.cursor() as cursor:
        if outermost:
            timeouts = {
                "idle_in_transaction_session_timeout": settings.LEASE_SECONDS,
                "lock_timeout": lock_timeout,
                "statement_timeout": statement_timeout,
            }
            local_ones = [f"SET LOCAL {name} = {int(each * 1000)}" for name, each in timeouts.items() if each]
            _execute_all(cursor, [READ_COMMITTED, *local_ones])
        yield cursor


def _execute_all(cursor: CursorWrapper, statements: list[str]) -> None:
    for each in statements if _is_in_pipeline(cursor.db) else ["; ".join(statements)]:
        cursor.execute(each)


def _is_in_pipeline(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the caller has opened a pipeline, where a message takes one statement only."""
    return bool(connection.connection.pgconn.pipeline_status)


def engine_cursor(using: str, *, about_to_wait: Callable[[], None] | None = None) -> CursorWrapper:
    """Open a cursor each of whose statements is a READ COMMITTED transaction of its own, or a part of the caller's.

    It is to be closed, as a context manager. Statements are prepared where a session is used often and no transaction
    pooler hands it on. `about_to_wait` is called once for each of them, when it is on its way to the server; where they
    are not prepared, at once. It must not use the connection.
    """
    connection = connections[using]
    require(connection)
    connection.ensure_connection()
    if can_prepare(connection):
        preparing = cast(CursorWrapper, PreparingCursor(connection, about_to_wait))
        return connection.make_cursor(preparing) if connection.execute_wrappers else preparing
    if about_to_wait is not None:
        about_to_wait()
    cursor = connection.cursor()
    return cursor if is_in_transaction(connection) else _OneByOne(cursor, connection)


@contextmanager
def sending_ahead(using: str) -> Iterator[None]:
    """Let `execute` return before its result has come, inside a transaction: fetching waits for it.

    So PostgreSQL works on one statement while the next is made. Where a session can't be prepared on, nothing changes.
    """
    connection = connections[using]
    if psycopg.Pipeline.is_supported() and can_prepare(connection, at_once=True):
        session = connection.connection
        with connection.wrap_database_errors, told_if_stale(session), session.pipeline():
            yield
    else:
        yield


def own(using: str) -> None:
    """Take this thread's connection for the engine alone; to be called again when it may have been made anew.

    Where no transaction pooler hands the session on, it is READ COMMITTED by default, and what is executed is prepared.
    Else, or with PREPARE off, nothing changes.
    """
    connection = connections[using]
    connection.ensure_connection()
    session = connection.connection
    if not is_decided(session):
        is_direct = settings.PREPARE == "auto" and not is_pooled(using)
        decide(session, is_direct=is_direct)
        if is_direct:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")


def is_pooled(using: str) -> bool:
    """Return whether a transaction pooler stands between us and PostgreSQL: no session is ours, LISTEN hears nothing.

    The pooler answers the client with a process id of its own making; the server names the real one.
    """
    with engine_cursor(using) as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        server_pid = cursor.fetchone()[0]
    return bool(connections[using].connection.info.backend_pid != server_pid)


class _OneByOne(CursorWrapper):
    """Sends the isolation level ahead of each statement, in the same message: PostgreSQL makes one transaction of it.

    One round trip, and a few microseconds more than the statement alone.
    """

    def execute(self, sql: Any, params: Any = None) -> None:
        # Parameters that the server binds go with one statement a message.
        if self.db.settings_dict["OPTIONS"].get("server_side_binding") or _is_in_pipeline(self.db):
            with transaction.atomic(using=self.db.alias):
                self.cursor.execute(READ_COMMITTED)
                self.cursor.execute(sql, params)
        else:
            self.cursor.execute(f"{READ_COMMITTED}; {sql}", params)
            self.cursor.nextset()
