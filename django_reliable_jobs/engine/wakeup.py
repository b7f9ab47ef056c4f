"""NOTIFY: a hint that a queue has work. Polling is the truth.

A statement that makes a job ready notifies only if a worker that serves the queue is marked idle: a busy fleet needs no
hint, and NOTIFY makes commits wait for each other. The race with a worker that is about to sleep is closed on the
worker's side: it marks itself idle, then looks once more, then polls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connections

from django_reliable_jobs.engine.transaction import engine_cursor

CHANNEL = "django_reliable_jobs"
SCHEDULES_CHANNEL = "django_reliable_jobs_schedules"  # a schedule was changed, or a leader resigned

# %s is an SQL expression for the queue's name. A scalar subquery: evaluated once per row that it is selected with.
NOTIFY_IDLE = (
    f"(SELECT pg_notify('{CHANNEL}', %s) WHERE EXISTS (SELECT 1 FROM django_reliable_jobs_worker worker"
    " WHERE worker.is_idle AND worker.lost_at IS NULL AND (worker.queues IS NULL OR %s = ANY(worker.queues))"
    " AND %s <> ALL(worker.excluded_queues)))"
)


# Of any queue: to look for what has become ready to go on.
ANY_QUEUE = ""
NOTIFY_ANY_IDLE = (
    f"(SELECT pg_notify('{CHANNEL}', '{ANY_QUEUE}') WHERE EXISTS (SELECT 1 FROM django_reliable_jobs_worker worker"
    " WHERE worker.is_idle AND worker.lost_at IS NULL))"
)


def notify_idle(queue_expression: str) -> str:
    """Return the SQL that notifies idle workers of the queue that an SQL expression names."""
    return NOTIFY_IDLE.replace("%s", queue_expression)


def notify_schedulers(using: str) -> None:
    """Wake the schedulers when the current transaction commits."""
    with engine_cursor(using) as cursor:
        cursor.execute("SELECT pg_notify(%s, '')", [SCHEDULES_CHANNEL])


@contextmanager
def listening(using: str, dsn: str | None, channel: str = CHANNEL) -> Iterator[psycopg.Connection]:
    """Open an autocommit connection of its own that listens, from `dsn` or as Django connects to `using`."""
    if dsn is None:
        wrapper = connections[using]
        parameters = wrapper.get_connection_params()
        if wrapper.settings_dict["OPTIONS"].get("pool"):  # one that is taken from there is missing for good
            connection = psycopg.connect(**parameters)
        else:
            connection = wrapper.get_new_connection(parameters)
        connection.autocommit = True
    else:
        connection = psycopg.connect(dsn, autocommit=True)
    try:
        connection.execute(f"LISTEN {channel}")
        yield connection
    finally:
        connection.close()
