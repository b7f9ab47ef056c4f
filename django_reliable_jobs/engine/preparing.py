"""Statements that are prepared: on which sessions, and how they are executed.

To plan a statement of the engine takes longer than to run it. Where a session is used often, and no transaction pooler
hands it on to somebody else, each is planned once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.waiting import Wait

from django_reliable_jobs.conf import settings

# Whether what is executed on a session is prepared: no pooler, and READ COMMITTED by default. Until that is known, how
# many statements there were.
_is_direct: WeakKeyDictionary[psycopg.Connection, bool] = WeakKeyDictionary()
_executed: WeakKeyDictionary[psycopg.Connection, int] = WeakKeyDictionary()
_thread = local()  # .keeps_sessions: it runs many statements on each of its connections
OFTEN = 5  # statements on a session: from then on it is worth a look
# What was prepared is gone (DISCARD ALL, DEALLOCATE ALL), or a column that it returns has another type by now.
_STALE = (errors.InvalidSqlStatementName, errors.FeatureNotSupported)


def keep_sessions() -> None:
    """Let `can_prepare` take each session of this thread for one that is used often, from its first statement on."""
    _thread.keeps_sessions = True


def is_decided(session: psycopg.Connection) -> bool:
    """Return whether it is known if a session is prepared on."""
    return session in _is_direct


def decide(session: psycopg.Connection, *, is_direct: bool) -> None:
    """Have a session prepared on, or not."""
    _is_direct[session] = is_direct


def can_prepare(connection: BaseDatabaseWrapper, *, at_once: bool = False) -> bool:
    """Return whether what is executed now is to be prepared; at once: however seldom the session was used."""
    if connection.queries_logged or _is_watched(connection):  # logs show the values, which prepared ones go without
        return False
    session = connection.connection
    is_direct = _is_direct.get(session)
    if is_direct is None and (at_once or _is_used_often(session)):
        is_direct = _ask(connection)
    return bool(is_direct)


def is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a transaction is open, be it one that Django knows of or not."""
    if connection.in_atomic_block or not connection.get_autocommit():
        return True
    is_idle: bool = connection.connection.pgconn.transaction_status == TransactionStatus.IDLE
    return not is_idle  # after a BEGIN that was executed, of which Django knows nothing


@contextmanager
def told_if_stale(session: psycopg.Connection) -> Iterator[None]:
    """Prepare nothing more on a session if what was prepared on it has gone stale, and tell what to do about it."""
    try:
        yield
    except _STALE as error:
        _note_stale(session, error)
        raise


class PreparingCursor(psycopg.Cursor[Any]):
    """Prepares each statement at its first execution, whatever else is done on the connection.

    Does what Django's cursor does besides: that takes longer than all of an INSERT's checks. `about_to_wait` is called
    once in each execution, when the whole message is on its way and the answer has not come, or else at the end.
    """

    def __init__(self, connection: BaseDatabaseWrapper, about_to_wait: Callable[[], None] | None = None) -> None:
        super().__init__(connection.connection)
        self._django, self._session = connection, connection.connection
        self._about_to_wait = about_to_wait

    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        self._django.validate_no_broken_transaction()
        session = self._session
        before, session.prepare_threshold = session.prepare_threshold, 0
        with self._django.wrap_database_errors:
            try:
                super().execute(query, params, prepare=True)
            except _STALE as error:
                _note_stale(session, error)
                if is_in_transaction(self._django):
                    raise  # it is broken
                self._about_to_wait = None  # was called
                super().execute(query, params, prepare=False)
            finally:
                session.prepare_threshold = before
        wire = session.pgconn
        if wire.pipeline_status:  # the server is to answer when it is done, not when it is asked for the answer
            wire.send_flush_request()
            wire.flush()
        return self

    def _execute_gen(self, *args: Any, **options: Any) -> Any:
        sending = super()._execute_gen(*args, **options)
        return sending if self._about_to_wait is None else _noticing(sending, self._about_to_wait)


def _noticing(sending: Generator[Any, Any, Any], about_to_wait: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Go through the steps of an execution, and call `about_to_wait` when it first has nothing to do but to read."""
    error: BaseException | None = None
    has_noticed = False

    def notice() -> None:
        nonlocal error, has_noticed
        has_noticed = True
        try:
            about_to_wait()
        except BaseException as caught:  # the answer is to be read first: else the connection is of no more use
            error = caught

    answer = None
    try:
        while True:
            wanted = sending.send(answer)
            if wanted == Wait.R and not has_noticed:
                notice()
            answer = yield wanted
    except StopIteration:
        pass
    if not has_noticed:
        notice()
    if error is not None:
        raise error


def _is_watched(connection: BaseDatabaseWrapper) -> bool:
    """Return whether somebody put a method of his own in the place of the connection's: he watches what is executed,
    or forbids it.
    """
    instead = vars(connection).get("cursor")  # Django's tests leave the connection's own there
    return instead is not None and getattr(instead, "__func__", None) is not type(connection).cursor


def _is_used_often(session: psycopg.Connection) -> bool:
    _executed[session] = count = _executed.get(session, 0) + 1
    return count > OFTEN or getattr(_thread, "keeps_sessions", False)


def _ask(connection: BaseDatabaseWrapper) -> bool:
    session, row = connection.connection, None
    if settings.PREPARE == "auto" and not _is_reset(connection):
        # Not through Django: it is no statement of the project's, whose tests count them.
        with connection.wrap_database_errors, psycopg.ClientCursor(session) as cursor:
            cursor.execute("SELECT pg_backend_pid(), current_setting('default_transaction_isolation')")
            row = cursor.fetchone()
    is_direct = row == (session.info.backend_pid, "read committed")
    decide(session, is_direct=is_direct)
    return is_direct


def _is_reset(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a pool in this process resets a session between its users: with DISCARD ALL, as a rule."""
    pool = connection.settings_dict["OPTIONS"].get("pool")
    return isinstance(pool, dict) and "reset" in pool


def _note_stale(session: psycopg.Connection, error: Exception) -> None:
    decide(session, is_direct=False)
    error.add_note("If sessions of this project are often reset (DISCARD ALL), set PREPARE to 'off'.")
