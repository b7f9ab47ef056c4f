"""How long a worker bears a database that does not answer: for ever, but in a burst."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

logger = logging.getLogger("django_reliable_jobs")

# Of failures in a row, in a burst. A server restarts in half of it; and of bursts that are started
# by the minute, as cron does, no pile grows while a name is wrong or a server is gone.
BURST_SECONDS = 60.0


class Patience:
    """Counts the failures in a row, waits a little after each, and ends a burst that has waited long enough."""

    def __init__(self, worker: Worker, *, is_limited: bool) -> None:
        self._worker = worker
        self._is_limited = is_limited
        self._failures = 0
        self._failing_since = 0.0
        self.has_run_out = False

    def answered(self) -> None:
        self._failures = 0

    def failed(self, error: Exception) -> None:
        """Wait for the next try, longer with each failure; or ask the worker to stop, and `has_run_out`."""
        now = time.monotonic()
        if self._failures == 0:
            self._failing_since = now
        self._failures += 1
        if self._is_limited and not self._worker.stops_asked and now - self._failing_since >= BURST_SECONDS:
            self._give_up(error, now - self._failing_since)
        else:
            self._worker.lost_connection(error, self._failures)

    def _give_up(self, error: Exception, seconds: float) -> None:
        worker = self._worker
        in_hand = worker.recorder.in_hand
        left = f"; its jobs in hand ({in_hand}) are taken back when its lease has run out" if in_hand else ""
        logger.error(
            "worker %s gives up: the database %r has not answered for %.0f s (%s)%s",
            *(worker.identity, worker.using, seconds, str(error).strip(), left),
        )
        self.has_run_out = True
        worker.vitals.gave_up()
        worker.request_stop()

    def leave_unregistered(self) -> int:
        """Tell why the worker ends before it has begun; return its exit code: 0 if nothing was wrong."""
        if self._failures == 0:
            logger.info("worker %s was stopped before it began", self._worker.identity)
            return 0
        if not self.has_run_out:
            logger.warning("worker %s was stopped before it reached the database", self._worker.identity)
        return 1
