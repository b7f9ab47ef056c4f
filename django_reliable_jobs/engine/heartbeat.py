"""The lease: one row per process, renewed by heartbeat, judged on the database's clock alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django_reliable_jobs import registry
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.transaction import engine_cursor

REGISTER = """
INSERT INTO django_reliable_jobs_worker (id, host, pid, queues, excluded_queues, threads, tasks, expires_at)
VALUES (%(id)s, %(host)s, %(pid)s, %(queues)s, %(excluded)s, %(threads)s, %(tasks)s,
        clock_timestamp() + make_interval(secs => %(lease)s))
    ON CONFLICT (id) DO NOTHING
"""

RENEW = """
UPDATE django_reliable_jobs_worker
   SET heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => %(lease)s),
       clock_offset = %(host_clock)s - extract(epoch FROM clock_timestamp())::float8,
       memory = coalesce(%(memory)s::bigint, memory)
 WHERE id = %(id)s AND lost_at IS NULL
"""

MARK_IDLE = "UPDATE django_reliable_jobs_worker SET is_idle = %(idle)s WHERE id = %(id)s AND is_idle <> %(idle)s"

MARK_STOPPING = "UPDATE django_reliable_jobs_worker SET is_idle = false, is_stopping = true WHERE id = %(id)s"

CANCEL_REQUESTS = """
SELECT job.token FROM django_reliable_jobs_cancelrequest asked
  JOIN django_reliable_jobs_job job ON job.id = asked.job_id
 WHERE job.worker_id = %(id)s AND job.status = 'RUNNING'
"""

# A worker that still has a row RUNNING stays on the list, for rescue to find it.
DEREGISTER = """
DELETE FROM django_reliable_jobs_worker worker WHERE id = %(id)s AND NOT EXISTS (
    SELECT 1 FROM django_reliable_jobs_job job WHERE job.worker_id = worker.id AND job.status = 'RUNNING')
"""

# A leaver that could not give everything back is rescued at once, without waiting for its lease to run out.
EXPIRE_NOW = "UPDATE django_reliable_jobs_worker SET expires_at = clock_timestamp() WHERE id = %(id)s"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who a worker process is: a random id per start, and what people recognise it by."""

    id: int
    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


def new_identity(host: str, pid: int) -> Identity:
    """Return an identity that no other start of a process has had, whatever its host and process id."""
    return Identity(id=secrets.randbits(62) + 1, host=host[:128], pid=pid)


def register(
    using: str,
    identity: Identity,
    *,
    queues: Sequence[str] | None,
    excluded: Sequence[str],
    threads: int,
) -> None:
    """Insert the worker's row, with the names of the tasks that it knows; its lease begins.

    Safe to repeat when the answer was lost.
    """
    _execute(
        using,
        REGISTER,
        identity.id,
        host=identity.host,
        pid=identity.pid,
        queues=None if queues is None else list(queues),
        excluded=list(excluded),
        threads=threads,
        tasks=registry.known_names(),
    )


def renew(using: str, worker_id: int, *, memory: int | None = None) -> bool:
    """Renew the lease, and tell how many bytes the process uses. False: it was declared lost, or its row is gone; the
    process must stop its jobs at once.
    """
    return _execute(using, RENEW, worker_id, host_clock=time.time(), memory=memory) == 1


def mark_idle(using: str, worker_id: int, *, idle: bool) -> None:
    """Tell enqueuers whether a NOTIFY would be heard with profit."""
    _execute(using, MARK_IDLE, worker_id, idle=idle)


def mark_stopping(using: str, worker_id: int) -> None:
    """Show that the worker claims no more."""
    _execute(using, MARK_STOPPING, worker_id)


def cancel_requests(using: str, worker_id: int) -> set[int]:
    """Return the tokens of this worker's running jobs that somebody asked to cancel."""
    with engine_cursor(using) as cursor:
        cursor.execute(CANCEL_REQUESTS, {"id": worker_id})
        return {token for (token,) in cursor.fetchall()}


def deregister(using: str, worker_id: int) -> None:
    """Take the worker off the list if it holds no job; otherwise end its lease, so that rescue comes at once."""
    if _execute(using, DEREGISTER, worker_id) == 0:
        _execute(using, EXPIRE_NOW, worker_id)


def _execute(using: str, statement: str, worker_id: int, **parameters: Any) -> int:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, {"id": worker_id, "lease": settings.LEASE_SECONDS, **parameters})
        return int(cursor.rowcount)
