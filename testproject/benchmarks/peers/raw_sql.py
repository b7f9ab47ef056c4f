"""What PostgreSQL and one Python connection can do with our table: claim 100, run 100, finish 100, and nothing more.

No lease, no limits, no fence, no wake-up, no threads, no Django. Statements are prepared by psycopg.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import psycopg

from testproject.benchmarks.peers import marks
from testproject.benchmarks.peers.driver import CHUNK, DSN, Stopwatch, arguments, drive, timed

INSERT = """
INSERT INTO django_reliable_jobs_job (task, queue_name, priority, max_attempts, unique_until_start, meta, created_at,
       run_after, status, expires_at, args, kwargs, unique_hash)
"""
INSERT_ONE = f"""{INSERT}
VALUES ('benchmark.noop', 'default', 0, 5, false, NULL, statement_timestamp(), statement_timestamp(), 'READY', NULL,
        %s::jsonb, %s::jsonb, NULL) RETURNING id
"""
INSERT_MANY = f"""{INSERT}
SELECT 'benchmark.noop', 'default', 0, 5, false, NULL, statement_timestamp(), statement_timestamp(), 'READY', NULL,
       given.args::jsonb, given.kwargs::jsonb, NULL FROM unnest(%s::text[], %s::text[]) AS given(args, kwargs)
RETURNING id
"""
INSERT_OF_OURS = os.environ.get("BENCHMARK_INSERT")
SHARED = {"task": "benchmark.noop", "queue_name": "default", "priority": 0, "max_attempts": 5}
CLAIM = """
WITH picked AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_job
     WHERE status = 'READY' AND concurrency_key IS NULL AND rate_key IS NULL AND serial_key IS NULL
       AND queue_name = 'default' AND priority = 0
     ORDER BY run_after, id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE django_reliable_jobs_job job
   SET status = 'RUNNING', attempt = job.attempt + 1, claims = job.claims + 1, worker_id = 1,
       token = (random() * 9223372036854775295)::bigint, started_at = clock_timestamp(),
       first_started_at = clock_timestamp()
  FROM picked WHERE job.id = picked.id
RETURNING job.id, job.task, job.args, job.kwargs
"""
FINISH = """
UPDATE django_reliable_jobs_job SET status = 'SUCCEEDED', finished_at = clock_timestamp()
 WHERE id = ANY(%s::bigint[])
"""


def _connect() -> psycopg.Connection[Any]:
    if os.environ.get("BENCHMARK_PREPARED", "1") == "1":
        return psycopg.connect(DSN, autocommit=True)
    return psycopg.connect(DSN, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.ClientCursor)


def enqueue(seconds: float) -> dict[str, float]:
    """Insert one per transaction."""
    with _connect() as connection:

        def insert(number: int) -> None:
            connection.execute(INSERT_ONE, ("[]", json.dumps(arguments(number)))).fetchone()

        def insert_as_ours(number: int) -> None:
            connection.execute(
                INSERT_OF_OURS, {**SHARED, "args": "[]", "kwargs": json.dumps(arguments(number))}
            ).fetchone()

        return timed(insert_as_ours if INSERT_OF_OURS else insert, seconds)


def bulk(jobs: int) -> dict[str, float]:
    """Insert by arrays, with the ids of all rows, in one transaction."""
    calls = [arguments(number) for number in range(jobs)]
    with _connect() as connection:
        watch = Stopwatch()
        with connection.transaction():
            for first in range(0, jobs, CHUNK):
                kwargs = [json.dumps(each) for each in calls[first : first + CHUNK]]
                connection.execute(INSERT_MANY, (["[]"] * len(kwargs), kwargs)).fetchall()
        return watch.result(jobs)


def noop(number: int, note: str) -> None:
    """Do nothing but count that it ran."""
    marks.ran()


def worker(concurrency: int) -> None:
    """Claim, run, finish, in turn; `concurrency` is the batch size."""
    tasks = {"benchmark.noop": noop}
    with _connect() as connection:
        while True:
            rows = connection.execute(CLAIM, (concurrency,)).fetchall()
            for _, task, args, kwargs in rows:
                tasks[task](*args, **kwargs)
            if rows:
                connection.execute(FINISH, ([row[0] for row in rows],))
            else:
                time.sleep(0.005)


if __name__ == "__main__":
    drive(enqueue, bulk, worker)
