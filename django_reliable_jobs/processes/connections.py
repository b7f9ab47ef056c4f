"""The life of database connections in threads that no request ends for."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from django_reliable_jobs.context import StopFlag

logger = logging.getLogger("django_reliable_jobs")

IDLE_SECONDS = 10  # a connection idle for longer may have been cut by a firewall or a pooler: it is asked before use

HALT_SECONDS = 1.0  # for the server to hear of a cancel

Shield = Callable[[], AbstractContextManager[None]]

_thread = threading.local()  # of a thread that runs a job: .flag, .shield
_querying: dict[int, BaseDatabaseWrapper] = {}  # by thread: the connection on which a job waits for an answer
_watching = threading.Event()
_known: dict[int, dict[str, BaseDatabaseWrapper]] = {}  # by thread and alias


def leave_pools() -> None:
    """Let each thread of this process open connections of its own, in place of Django's pool; called before any is.

    A thread keeps its connection from job to job, and a pool has no more of them than its size (4, if nothing is said):
    the other threads would wait in vain.
    """
    for alias in connections.settings:
        options = connections.settings[alias]["OPTIONS"]
        if options.get("pool"):
            connections[alias].close()
            connections[alias].close_pool()  # type: ignore[attr-defined]
            del options["pool"]


def make_usable() -> None:
    """Drop this thread's connections that the server has ended, before a job or a turn uses them."""
    for connection in _mine():
        connection.queries_log.clear()  # what DEBUG collects
        if connection.connection is None or connection.in_atomic_block:
            continue
        idle = time.monotonic() - getattr(connection, "reliable_jobs_used_at", 0.0)
        if connection.errors_occurred or (idle > IDLE_SECONDS and not connection.is_usable()):
            _close(connection)
        connection.errors_occurred = False
        connection.reliable_jobs_used_at = time.monotonic()  # type: ignore[attr-defined]


def leave_clean(*, discard: bool = False) -> list[str]:
    """Roll back and close what a job left open in this thread; return the aliases whose transaction was left open.

    `discard`: close every connection, as a query of the job was cancelled and the cancel may arrive late.
    """
    left_open = []
    for connection in _mine():
        if connection.connection is None:
            continue
        is_open = connection.in_atomic_block or not connection.get_autocommit()
        status = _status(connection)
        if is_open or status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            left_open.append(connection.alias)
            _close(connection)
        elif discard or connection.errors_occurred or status != TransactionStatus.IDLE:
            _close(connection)
        else:
            connection.reliable_jobs_used_at = time.monotonic()  # type: ignore[attr-defined]
    return left_open


def _mine() -> Sequence[BaseDatabaseWrapper]:
    if not _watching.is_set():
        return connections.all(initialized_only=True)
    # The same, without the third of a job's time that it takes.
    return list(_known_here().values())


def _known_here() -> dict[str, BaseDatabaseWrapper]:
    # All of them, open or not: one that breaks while Django sets it up is never said to be created, and stays broken.
    thread = threading.get_ident()
    if thread not in _known:
        _known[thread] = {connection.alias: connection for connection in connections.all()}
    return _known[thread]


def _status(connection: BaseDatabaseWrapper) -> TransactionStatus:
    # What the driver knows, as Django does not see a BEGIN that was executed, nor a query that was interrupted.
    if connection.vendor != "postgresql":
        return TransactionStatus.IDLE
    status: TransactionStatus = connection.connection.info.transaction_status
    return status


def close_all() -> None:
    """Close this thread's connections; the last thing that a thread does."""
    for connection in _mine():
        _close(connection)
    _known.pop(threading.get_ident(), None)


def cut(thread: int) -> bool:
    """Shut the sockets of a thread's connections under it; return whether there was one.

    What waits on one for an answer that does not come, since the network lost the connection without a word, gets an
    error at once instead of hours later.
    """
    was_cut = False
    for connection in list(_known.get(thread, {}).values()):
        raw = connection.connection
        with suppress(psycopg.Error, OSError):  # it was closed meanwhile
            if raw is not None and connection.vendor == "postgresql":
                with socket.socket(fileno=os.dup(raw.fileno())) as end:
                    end.shutdown(socket.SHUT_RDWR)
                    was_cut = True
    return was_cut


def halt(thread: int) -> None:
    """End what a thread does in the database, and let it do nothing more there: for what must not go on."""
    for connection in list(_known.get(thread, {}).values()):
        raw = connection.connection
        with suppress(psycopg.Error):  # a query that goes on would hold its locks, whatever becomes of its connection
            if raw is not None and connection.vendor == "postgresql":
                raw.cancel_safe(timeout=HALT_SECONDS)
    cut(thread)


def guard(flag: StopFlag, shield: Shield) -> int:
    """Make every query of this thread a safe point of its job, once its flag insists; return the thread's number.

    Inside `shield` nothing interrupts the thread: a COMMIT must not be left half done.
    """
    _thread.flag, _thread.shield = flag, shield
    return threading.get_ident()


def unguard() -> None:
    """End what `guard` began."""
    _thread.flag = _thread.shield = None
    _querying.pop(threading.get_ident(), None)


def cancel_query(thread: int) -> bool:
    """Cancel the query that a job waits for in this thread; return whether there was one."""
    connection = _querying.get(thread)
    raw = connection.connection if connection is not None else None
    if raw is None:
        return False
    try:
        raw.cancel_safe(timeout=2)
    except psycopg.Error as error:  # the server is not reached; the next step follows all the same
        logger.warning("a query could not be cancelled: %s", str(error).strip())
    return True


def _watch_query(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    flag: StopFlag | None = getattr(_thread, "flag", None)
    if flag is None:
        return execute(sql, params, many, context)
    if flag.insists:
        raise flag.interruption()
    thread = threading.get_ident()
    _querying[thread] = context["connection"]
    try:
        return execute(sql, params, many, context)
    finally:
        _querying.pop(thread, None)


def _watch(connection: Any, **_: Any) -> None:
    _known_here()[connection.alias] = connection
    if connection.vendor != "postgresql":
        return
    if _watch_query in connection.execute_wrappers:
        return
    # First: Django takes away the last one when a block of the project's own wrapper ends.
    connection.execute_wrappers.insert(0, _watch_query)
    commit = connection._commit

    def commit_shielded() -> None:
        shield: Shield | None = getattr(_thread, "shield", None)
        with shield() if shield is not None else nullcontext():
            commit()

    connection._commit = commit_shielded


def watch_queries() -> None:
    """Watch every connection that this process opens from now on; called once, when it starts."""
    connections.close_all()  # what this thread has open was not seen
    _watching.set()
    connection_created.connect(_watch, dispatch_uid="reliable_jobs_watch_queries")


def _close(connection: BaseDatabaseWrapper) -> None:
    # A transaction left open would make Django keep the connection until a rollback that never comes.
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection.closed_in_transaction = False
    connection.close()
