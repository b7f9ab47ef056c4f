"""What a running attempt writes: its fence and its checkpoints.

The fence is a lock on the job's row, taken under the attempt's token, last in the transaction that it protects: while
it is held nobody can replace the attempt, and an attempt that was replaced gets no row and raises LeaseLost. A lock,
not a look: EXISTS sees a token that is replaced before COMMIT, and FOR KEY SHARE does not stop the UPDATE that replaces
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from django_reliable_jobs import arguments
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.transaction import LIMIT_IDLE
from django_reliable_jobs.exceptions import LeaseLost

# Found by id, and its status looked at afterwards, as in lifecycle.SUCCEED.
MINE = """
held AS MATERIALIZED (
    SELECT id, run, status FROM django_reliable_jobs_job
     WHERE id = %(job_id)s AND token = %(token)s FOR NO KEY UPDATE
), mine AS (
    SELECT id, run FROM held WHERE status = 'RUNNING'
)"""

FENCE = f"WITH {MINE} SELECT {LIMIT_IDLE} FROM mine"

SAVE = f"""
WITH {MINE}
INSERT INTO django_reliable_jobs_checkpoint AS checkpoint (job_id, run, name, value, token, saved_at)
SELECT mine.id, mine.run, %(name)s, %(value)s::jsonb, %(token)s, clock_timestamp() FROM mine
    ON CONFLICT (job_id, run, name, kind)
    DO UPDATE SET value = excluded.value, token = excluded.token, saved_at = excluded.saved_at
RETURNING {LIMIT_IDLE}
"""

LOAD = """
SELECT value::text FROM django_reliable_jobs_checkpoint
 WHERE job_id = %(job_id)s AND run = %(run)s AND name = %(name)s AND kind = 'checkpoint'
"""


class AttemptPort:
    """What the context of one attempt writes through. Every write is fenced: a replaced attempt raises LeaseLost."""

    def __init__(self, using: str, *, job_id: int, token: int, run: int, task: str) -> None:
        self._using = using
        self._task = task
        self._key = {"job_id": job_id, "token": token, "run": run}

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """Run a block in a transaction that takes the fence last, before it commits."""
        with transaction.atomic(using=self._using):
            yield
            self._write(FENCE)

    def save(self, name: str, value: Any) -> None:
        """Save a checkpoint in the current transaction, or in one of its own."""
        text = arguments.dump_checkpoint(name, value, task=self._task, max_bytes=settings.MAX_RESULT_BYTES)
        self._write(SAVE, name=name, value=text)

    def load(self, name: str, default: Any) -> Any:
        """Return the value of a checkpoint of this run, or `default`."""
        with connections[self._using].cursor() as cursor:
            cursor.execute(LOAD, {**self._key, "name": name})
            row = cursor.fetchone()
        return default if row is None else arguments.load(row[0])

    def _write(self, statement: str, **parameters: Any) -> None:
        with connections[self._using].cursor() as cursor:
            cursor.execute(statement, {**self._key, "lease": settings.LEASE_SECONDS, **parameters})
            if cursor.fetchone() is None:
                raise LeaseLost(
                    f"job {self._key['job_id']} was given to another attempt; nothing of this one is written"
                )
