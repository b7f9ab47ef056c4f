"""The life of database connections in threads that no request ends for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_reliable_jobs.context import StopFlag

logger = logging.getLogger("django_reliable_jobs")

IDLE_SECONDS = (
    10  # a connection idle for longer may have been cut by a firewall or a pooler: it is asked before it is used
)

_thread = threading.local()  # .flag of the job that runs here, .querying its connection while it waits for an answer


def make_usable() -> None:
    """Drop this thread's connections that the server has ended, before a job or a turn uses them."""
    reset_queries()
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or connection.in_atomic_block:
            continue
        idle = time.monotonic() - getattr(connection, "reliable_jobs_used_at", 0.0)
        if connection.errors_occurred or (idle > IDLE_SECONDS and not connection.is_usable()):
            _close(connection)
        connection.errors_occurred = False
        connection.reliable_jobs_used_at = time.monotonic()  # type: ignore[attr-defined]


def leave_clean() -> list[str]:
    """Roll back and close what a job left open in this thread; return the aliases whose transaction was left open."""
    left_open = []
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if connection.in_atomic_block or not connection.get_autocommit():
            left_open.append(connection.alias)
            _close(connection)
        elif connection.errors_occurred:
            _close(connection)
        else:
            connection.reliable_jobs_used_at = time.monotonic()  # type: ignore[attr-defined]
    return left_open


def close_all() -> None:
    """Close this thread's connections; the last thing that a thread does."""
    for connection in connections.all(initialized_only=True):
        _close(connection)


@contextmanager
def guarded_by(flag: StopFlag) -> Iterator[None]:
    """Make every query of this thread a safe point of the job inside the block, once its flag insists."""
    _thread.flag = flag
    _running[threading.get_ident()] = None
    try:
        yield
    finally:
        _thread.flag = None
        _running.pop(threading.get_ident(), None)


def cancel_query(thread: int) -> None:
    """Cancel the query that a job waits for in this thread, if it waits for one."""
    querying = _running.get(thread)
    if querying is None or querying.connection is None:
        return
    try:
        querying.connection.cancel_safe(timeout=2)
    except psycopg.Error as error:  # the server is not reached; the next step follows all the same
        logger.warning("a query could not be cancelled: %s", str(error).strip())


_running: dict[int, BaseDatabaseWrapper | None] = {}


def _watch_query(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    flag: StopFlag | None = getattr(_thread, "flag", None)
    if flag is None:
        return execute(sql, params, many, context)
    if flag.insists:
        raise flag.interruption()
    _running[threading.get_ident()] = context["connection"]
    try:
        return execute(sql, params, many, context)
    finally:
        _running[threading.get_ident()] = None


def _watch(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if _watch_query not in connection.execute_wrappers:
        connection.execute_wrappers.append(_watch_query)


def watch_queries() -> None:
    """Watch every connection that this process opens from now on; called once, when a worker starts."""
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
