"""The life of database connections in threads that no request ends for."""

from __future__ import annotations

import time

from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper

IDLE_SECONDS = (
    10  # a connection idle for longer may have been cut by a firewall or a pooler: it is asked before it is used
)


def make_usable() -> None:
    """Drop this thread's connections that the server has ended, before a job or a turn uses them."""
    reset_queries()
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or connection.in_atomic_block:
            continue
        idle = time.monotonic() - getattr(connection, "_reliable_jobs_used", 0)
        if connection.errors_occurred or (idle > IDLE_SECONDS and not connection.is_usable()):
            _close(connection)
        connection.errors_occurred = False
        connection.health_check_done = False


def leave_clean(*, in_transaction_before: bool = False) -> list[str]:
    """Roll back and close what a job left open in this thread; return the aliases whose transaction was left open."""
    left_open = []
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or in_transaction_before:
            continue
        if connection.in_atomic_block or not connection.get_autocommit():
            left_open.append(connection.alias)
            _close(connection)
        elif connection.errors_occurred:
            _close(connection)
        else:
            connection._reliable_jobs_used = time.monotonic()  # type: ignore[attr-defined]
    return left_open


def close_all() -> None:
    """Close this thread's connections; the last thing that a thread does."""
    for connection in connections.all(initialized_only=True):
        _close(connection)


def _close(connection: BaseDatabaseWrapper) -> None:
    # A transaction left open would make Django keep the connection until a rollback that never comes.
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection.close()
