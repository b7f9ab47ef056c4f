"""A job queue in fifty lines: exercise 2. Three statements are all of it."""

from __future__ import annotations

from typing import Any

from testproject.exercises.stage import query

TABLES = (
    """CREATE TABLE exercise.job (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL,
        status text NOT NULL DEFAULT 'ready', worker text, runs int NOT NULL DEFAULT 0)""",
    # Only what is ready: a job that is done leaves this index, however long the history grows.
    "CREATE INDEX job_ready ON exercise.job (id) WHERE status = 'ready'",
    "CREATE INDEX job_status ON exercise.job (status, id)",  # what one would make first, to compare
)

ENQUEUE = "INSERT INTO exercise.job (payload) SELECT unnest(%s::text[])"

# Rows that another worker has locked are passed over, not waited for: workers do not stand in each other's way.
CLAIM = """
WITH picked AS MATERIALIZED (
    SELECT id FROM exercise.job WHERE status = 'ready' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE exercise.job job SET status = 'running', worker = %s, runs = runs + 1
  FROM picked WHERE job.id = picked.id
RETURNING job.id, job.payload
"""

FINISH = "UPDATE exercise.job SET status = 'done' WHERE id = ANY(%s) AND worker = %s AND status = 'running'"


def enqueue(payloads: list[str]) -> None:
    """Insert jobs, in the caller's transaction."""
    query(ENQUEUE, payloads)


def claim(worker: str, most: int) -> list[tuple[Any, ...]]:
    """Take jobs that nobody else has."""
    return query(CLAIM, most, worker)


def finish(worker: str, ids: list[int]) -> None:
    """Record that they are done."""
    query(FINISH, ids, worker)
