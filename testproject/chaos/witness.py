"""What the monkey sees of the work, so that it can strike where it hurts: who runs what, and who has been replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from testproject.chaos.server import ChaosServer

BUSY = """
SELECT worker.pid, array_agg(job.id), array_agg(job.token)
  FROM django_reliable_jobs_job job JOIN django_reliable_jobs_worker worker ON worker.id = job.worker_id
 WHERE job.status = 'RUNNING' AND job.queue_name = 'business' AND job.started_at < clock_timestamp() - interval '0.2 s'
   AND worker.lost_at IS NULL
 GROUP BY worker.pid ORDER BY worker.pid
"""

IS_REPLACED = """
SELECT EXISTS (SELECT 1 FROM unnest(%s::bigint[], %s::bigint[]) AS held(id, token)
                 JOIN django_reliable_jobs_job job ON job.id = held.id
                WHERE job.status = 'RUNNING' AND job.token <> held.token)
"""


@dataclass(frozen=True)
class Busy:
    """A process in the middle of work with effects that must not be doubled."""

    pid: int
    job_ids: list[int]
    tokens: list[int]


class Witness:
    """Looks past the proxy; sees nothing while the server is down."""

    def __init__(self, server: ChaosServer) -> None:
        self._server = server
        self._connection: psycopg.Connection | None = None

    def find_busy(self) -> list[Busy]:
        """Return the processes that are in the middle of a job with effects in transactions."""
        return [Busy(*row) for row in self._ask(BUSY)]

    def has_been_replaced(self, busy: Busy) -> bool:
        """Return whether one of the jobs that the process had runs elsewhere at this moment."""
        return any(row[0] for row in self._ask(IS_REPLACED, [busy.job_ids, busy.tokens]))

    def close(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()

    def _ask(self, statement: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._server.connect()
            return self._connection.execute(statement, parameters).fetchall()
        except psycopg.Error:
            self.close()
            self._connection = None
            return []
