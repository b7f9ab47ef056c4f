"""Events: facts that jobs wait for. The first of a name stays; a second one changes nothing."""

from __future__ import annotations

from typing import Any

from django_reliable_jobs import arguments, clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.requirements import noting_migrate
from django_reliable_jobs.engine.transaction import default_database, engine_cursor
from django_reliable_jobs.engine.wakeup import NOTIFY_ANY_IDLE
from django_reliable_jobs.sync_only import refuse_on_event_loop

PRUNE_BATCH = 1000
PRUNE_BATCHES = 10

# Only an INSERT, so that it locks no row of a job or a wait in the caller's transaction: workers find who waits.
EMIT = f"""
INSERT INTO django_reliable_jobs_event (name, payload, emitted_at)
VALUES (%(name)s, %(payload)s::jsonb, coalesce(%(moment)s::timestamptz, clock_timestamp()))
    ON CONFLICT (name) DO NOTHING
RETURNING {NOTIFY_ANY_IDLE}
"""

# A wait keeps its event until the job has taken note of it; that of a job that has ended waits no more.
PRUNE = """
WITH old AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_event event
     WHERE emitted_at < coalesce(%(moment)s::timestamptz, clock_timestamp()) - %(age)s::interval AND NOT is_new
       AND NOT EXISTS (SELECT 1 FROM django_reliable_jobs_wait wait
                         JOIN django_reliable_jobs_job job ON job.id = wait.job_id
                        WHERE wait.event = event.name AND job.finished_at IS NULL)
     ORDER BY emitted_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED
)
DELETE FROM django_reliable_jobs_event WHERE id IN (SELECT id FROM old)
"""


@noting_migrate
def emit(name: str, payload: Any, *, using: str | None) -> bool:
    """Insert an event in the caller's transaction. See `django_reliable_jobs.emit_event`."""
    refuse_on_event_loop("emit_event()", "`await aemit_event(…)`")
    text = arguments.dump_payload(name, payload, max_bytes=settings.MAX_RESULT_BYTES)
    with engine_cursor(using or default_database()) as cursor:
        cursor.execute(EMIT, {"name": name, "payload": text, "moment": clock.moment()})
        return cursor.fetchone() is not None


def prune(using: str) -> int:
    """Delete events older than EVENT_RETENTION that no job waits for, at most a few batches; return how many."""
    deleted, age = 0, f"{settings.EVENT_RETENTION.total_seconds():.0f} s"
    for _ in range(PRUNE_BATCHES):
        with engine_cursor(using) as cursor:
            cursor.execute(PRUNE, {"moment": clock.moment(), "age": age, "batch": PRUNE_BATCH})
            count = int(cursor.rowcount)
        deleted += count
        if count < PRUNE_BATCH:
            break
    return deleted
