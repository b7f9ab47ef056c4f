"""The transactions of the engine: READ COMMITTED, whatever the default of the server, the role or the project.

Without a setting of the session, which a transaction pooler would hand to somebody else; but for a connection that is
the engine's own from end to end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import local
from typing import Any
from weakref import WeakSet

import psycopg
from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from psycopg.pq import TransactionStatus

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.requirements import require
from django_reliable_jobs.models import Job

# Until the transaction ends, the server ends a session that sits idle in it for longer than a lease, or sooner if that
# is what is set already: a process that is stopped (SIGSTOP, a frozen machine) holds no row for ever. An SQL
# expression, so that it travels in the statement that takes the lock. Outside a transaction it has no effect.
LIMIT_IDLE = """set_config('idle_in_transaction_session_timeout', ceil(1000 * least(%(lease)s::float8, coalesce(nullif(
    extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval), 0),
    %(lease)s::float8)))::text,
    true)"""

_asked: WeakSet[psycopg.Connection] = WeakSet()  # what lies behind these was looked at
_direct: WeakSet[psycopg.Connection] = WeakSet()  # of these: no pooler, and READ COMMITTED by default
_thread = local()  # .keeps_sessions: it runs many statements on each of its connections

READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"


# By alias, how many blocks of `atomic` were open around the job: in a test, those of the test.
around: ContextVar[Mapping[str, int]] = ContextVar("reliable_jobs_around", default={})  # noqa: B039 - never changed


def open_blocks() -> dict[str, int]:
    """Return how many blocks of `atomic` are open on each connection of this thread."""
    return {each.alias: len(each.atomic_blocks) for each in connections.all(initialized_only=True)}


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
    outermost = not connection.in_atomic_block
    with transaction.atomic(using=using, savepoint=savepoint), connection.cursor() as cursor:
        if outermost:
            timeouts = {
                "idle_in_transaction_session_timeout": settings.LEASE_SECONDS,
                "lock_timeout": lock_timeout,
                "statement_timeout": statement_timeout,
            }
            cursor.execute(
                READ_COMMITTED
                + "".join(f"; SET LOCAL {name} = {int(each * 1000)}" for name, each in timeouts.items() if each)
            )
        yield cursor


@contextmanager
def engine_cursor(using: str) -> Iterator[CursorWrapper]:
    """Open a cursor each of whose statements is a READ COMMITTED transaction of its own, or a part of the caller's."""
    connection = connections[using]
    require(connection)
    connection.ensure_connection()
    session = connection.connection
    if session not in _asked and getattr(_thread, "keeps_sessions", False):
        _ask(connection)
    if session in _direct:
        with CursorWrapper(_Preparing(session), connection) as preparing:
            yield preparing
    else:
        with connection.cursor() as cursor:
            yield cursor if _is_in_transaction(connection) else _OneByOne(cursor, connection)


def keep_sessions() -> None:
    """Let `engine_cursor` prepare what this thread executes, where no transaction pooler hands the session on.

    For a thread that executes the same statements again and again on the same connections: to plan them takes longer
    than to run them.
    """
    _thread.keeps_sessions = settings.PREPARE == "auto"


def own(using: str) -> None:
    """Take this thread's connection for the engine alone; to be called again when it may have been made anew.

    Where no transaction pooler hands the session on, it is READ COMMITTED by default, and what is executed is prepared.
    Else, or with PREPARE off, nothing changes.
    """
    connection = connections[using]
    connection.ensure_connection()
    session = connection.connection
    if session not in _asked and settings.PREPARE == "auto" and not is_pooled(using):
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
        _direct.add(session)
    _asked.add(session)


def _ask(connection: BaseDatabaseWrapper) -> None:
    session = connection.connection
    _asked.add(session)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), current_setting('default_transaction_isolation')")
        row = cursor.fetchone()
    if row == (session.info.backend_pid, "read committed"):
        _direct.add(session)


def is_pooled(using: str) -> bool:
    """Return whether a transaction pooler stands between us and PostgreSQL: no session is ours, LISTEN hears nothing.

    The pooler answers the client with a process id of its own making; the server names the real one.
    """
    with engine_cursor(using) as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        server_pid = cursor.fetchone()[0]
    return bool(connections[using].connection.info.backend_pid != server_pid)


class _Preparing(psycopg.Cursor[Any]):
    """Prepares each statement at its first execution, whatever else is done on the connection."""

    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        before = self.connection.prepare_threshold
        self.connection.prepare_threshold = 0
        try:
            return super().execute(query, params, prepare=True)
        finally:
            self.connection.prepare_threshold = before


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    if connection.in_atomic_block or not connection.get_autocommit():
        return True
    is_idle: bool = connection.connection.pgconn.transaction_status == TransactionStatus.IDLE
    return not is_idle  # after a BEGIN that was executed, of which Django knows nothing


class _OneByOne(CursorWrapper):
    """Sends the isolation level ahead of each statement, in the same message: PostgreSQL makes one transaction of it.

    One round trip, and a few microseconds more than the statement alone.
    """

    def execute(self, sql: Any, params: Any = None) -> None:
        if self.db.settings_dict["OPTIONS"].get("server_side_binding"):  # one statement a message
            with transaction.atomic(using=self.db.alias):
                self.cursor.execute(READ_COMMITTED)
                self.cursor.execute(sql, params)
        else:
            self.cursor.execute(f"{READ_COMMITTED}; {sql}", params)
            self.cursor.nextset()
