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

from django_reliable_jobs import arguments, batches
from django_reliable_jobs.conf import settings
from django_reliable_jobs.context import JobContext
from django_reliable_jobs.engine.transaction import LIMIT_IDLE, around, engine_cursor, open_blocks
from django_reliable_jobs.exceptions import InvalidBatches, LeaseLost
from django_reliable_jobs.sync_only import refuse_on_event_loop

# Found by id, and its status looked at afterwards, as in lifecycle.SUCCEED.
MINE = """
held AS MATERIALIZED (
    SELECT id, run, status FROM django_reliable_jobs_job
     WHERE id = %(job_id)s AND token = %(token)s FOR NO KEY UPDATE
), mine AS (
    SELECT id, run FROM held WHERE status = 'RUNNING'
)"""

BATCH_IDLE_LEASES = 4  # a batch may sit idle for so long: one of a process that was stopped holds no row for ever

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
        self._names_of_batches = set[str]()
        self._key = {"job_id": job_id, "token": token, "run": run}

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """Run a block in a transaction that takes the fence last, before it commits."""
        refuse_on_event_loop("context.fenced()", "`await context.afenced(write, …)` with a plain function that writes")
        with transaction.atomic(using=self._using):
            yield
            self._write(FENCE)

    def save(self, name: str, value: Any) -> None:
        """Save a checkpoint in the current transaction, or in one of its own."""
        refuse_on_event_loop("context.save_checkpoint()", "`await context.asave_checkpoint(…)`")
        text = arguments.dump_checkpoint(name, value, task=self._task, max_bytes=settings.MAX_RESULT_BYTES)
        self._write(SAVE, name=name, value=text)

    def load(self, name: str, default: Any) -> Any:
        """Return the value of a checkpoint of this run, or `default`."""
        refuse_on_event_loop("context.load_checkpoint()", "`await context.aload_checkpoint(…)`")
        with engine_cursor(self._using) as cursor:
            cursor.execute(LOAD, {**self._key, "name": name})
            row = cursor.fetchone()
        return default if row is None else arguments.load(row[0])

    def batches(self, context: JobContext, source: Any, **options: Any) -> batches.Batches[Any]:
        """Return the batches of a source. See `JobContext.batches`."""
        refuse_on_event_loop("context.batches()", "`await sync_to_async(…)` of a plain function with the whole loop")
        result = batches.over(context, source, transaction=self._batch_transaction, **options)
        if result.name in self._names_of_batches:
            raise InvalidBatches(f"{self._task}: a second loop goes by the name {result.name!r}: give it another name=")
        self._names_of_batches.add(result.name)
        return result

    @contextmanager
    def _batch_transaction(self) -> Iterator[None]:
        if open_blocks().get(self._using, 0) > around.get().get(self._using, 0):
            raise InvalidBatches(
                f"{self._task}: batches() inside a transaction could commit nothing before its end: leave atomic(), and"
                " @task(atomic=True), away from around the loop"
            )
        with transaction.atomic(using=self._using):
            with engine_cursor(self._using) as cursor:
                cursor.execute(f"SELECT {LIMIT_IDLE}", {"lease": settings.LEASE_SECONDS * BATCH_IDLE_LEASES})
            yield
        connection = connections[self._using]
        if connection.queries_logged and not connection.force_debug_cursor:
            connection.queries_log.clear()  # which grows with DEBUG, for as long as the job runs

    def _write(self, statement: str, **parameters: Any) -> None:
        with engine_cursor(self._using) as cursor:
            cursor.execute(statement, {**self._key, "lease": settings.LEASE_SECONDS, **parameters})
            if cursor.fetchone() is None:
                raise LeaseLost(
                    f"job {self._key['job_id']} was given to another attempt; nothing of this one is written"
                )
