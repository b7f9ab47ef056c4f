"""The transactions of the engine: READ COMMITTED, whatever the default of the server, the role or the project.

Without a setting of the session, which a transaction pooler would hand to somebody else; but for a connection that is
the engine's own from end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import local
from typing import Any, cast
from weakref import WeakKeyDictionary

import psycopg
from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from psycopg.pq import TransactionStatus

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.preparing import PreparingCursor
from django_reliable_jobs.engine.requirements import require
from django_reliable_jobs.models import Job

# Until the transaction ends, the server ends a session that sits idle in it for longer than a lease, or sooner if that
# is what is set already: a process that is stopped (SIGSTOP, a frozen machine) holds no row for ever. An SQL
# expression, so that it travels in the statement that takes the lock. Outside a transaction it has no effect.
LIMIT_IDLE = """set_config('idle_in_transaction_session_timeout', ceil(1000 * least(%(lease)s::float8, coalesce(nullif(
    extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval), 0),
    %(lease)s::float8)))::text,
    true)"""

# Whether what is executed on a session is prepared: no pooler, and READ COMMITTED by default. Until that is known, how
# many statements there were.
_is_direct: WeakKeyDictionary[psycopg.Connection, bool] = WeakKeyDictionary()
_executed: WeakKeyDictionary[psycopg.Connection, int] = WeakKeyDictionary()
_thread = local()  # .keeps_sessions: it runs many statements on each of its connections
OFTEN = 5  # statements on a session: from then on it is worth a look

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
    return not connection.get_autocommit() or _is_in_transaction(connection)


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


def engine_cursor(using: str, *, about_to_wait: Callable[[], None] | None = None) -> CursorWrapper:
    """Open a cursor each of whose statements is a READ COMMITTED transaction of its own, or a part of the caller's.

    It is to be closed, as a context manager. Statements are prepared where a session is used often and no transaction
    pooler hands it on: to plan them takes longer than to run them. `about_to_wait` is called once for each statement,
    when it is on its way to the server; where statements are not prepared, at once. It must not use the connection.
    """
    connection = connections[using]
    require(connection)
    connection.ensure_connection()
    if _can_prepare(connection):
        preparing = cast(CursorWrapper, PreparingCursor(connection, about_to_wait))
        return connection.make_cursor(preparing) if connection.execute_wrappers else preparing
    if about_to_wait is not None:
        about_to_wait()
    cursor = connection.cursor()
    return cursor if _is_in_transaction(connection) else _OneByOne(cursor, connection)


@contextmanager
def sending_ahead(using: str) -> Iterator[None]:
    """Let `execute` return before its result has come, inside a transaction: fetching waits for it.

    So PostgreSQL works on one statement while the next is made. Where a session can't be prepared on, nothing changes.
    """
    connection = connections[using]
    if psycopg.Pipeline.is_supported() and _can_prepare(connection, at_once=True):
        with connection.wrap_database_errors, connection.connection.pipeline():
            yield
    else:
        yield


def keep_sessions() -> None:
    """Let `engine_cursor` take each session of this thread for one that is used often, from its first statement on."""
    _thread.keeps_sessions = True


def own(using: str) -> None:
    """Take this thread's connection for the engine alone; to be called again when it may have been made anew.

    Where no transaction pooler hands the session on, it is READ COMMITTED by default, and what is executed is prepared.
    Else, or with PREPARE off, nothing changes.
    """
    connection = connections[using]
    connection.ensure_connection()
    session = connection.connection
    if session not in _is_direct:
        _is_direct[session] = is_direct = settings.PREPARE == "auto" and not is_pooled(using)
        if is_direct:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")


def _can_prepare(connection: BaseDatabaseWrapper, *, at_once: bool = False) -> bool:
    session = connection.connection
    is_direct = _is_direct.get(session)
    if is_direct is None and (at_once or _is_used_often(session)):
        is_direct = _ask(connection)
    return bool(is_direct) and not connection.queries_logged  # logs show the values, which prepared ones travel without


def _is_used_often(session: psycopg.Connection) -> bool:
    _executed[session] = count = _executed.get(session, 0) + 1
    return count > OFTEN or getattr(_thread, "keeps_sessions", False)


def _ask(connection: BaseDatabaseWrapper) -> bool:
    session, row = connection.connection, None
    if settings.PREPARE == "auto":
        # Not through Django: it is no statement of the project's, whose tests count them.
        with connection.wrap_database_errors, psycopg.ClientCursor(session) as cursor:
            cursor.execute("SELECT pg_backend_pid(), current_setting('default_transaction_isolation')")
            row = cursor.fetchone()
    _is_direct[session] = is_direct = row == (session.info.backend_pid, "read committed")
    return is_direct


def is_pooled(using: str) -> bool:
    """Return whether a transaction pooler stands between us and PostgreSQL: no session is ours, LISTEN hears nothing.

    The pooler answers the client with a process id of its own making; the server names the real one.
    """
    with engine_cursor(using) as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        server_pid = cursor.fetchone()[0]
    return bool(connections[using].connection.info.backend_pid != server_pid)


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
