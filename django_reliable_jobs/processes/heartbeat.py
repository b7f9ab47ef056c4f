"""The thread that keeps the lease, hears of cancel requests and writes progress. It locks no job's row: no job can
hold it up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import heartbeat
from django_reliable_jobs.processes.loop import Loop
from django_reliable_jobs.processes.memory import resident_bytes
from django_reliable_jobs.processes.reporting import write_progress

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

TRUST = 0.8  # of a lease, counted from before it was renewed: what is left is for ending the jobs
TURN_SECONDS = 1.0  # how often cancel requests are read while jobs run


class Heartbeat(Loop):
    """Renews three times in a lease; when it can't, ends the jobs before somebody else starts them."""

    def __init__(self, worker: Worker, *, on_death: Callable[[str, BaseException], None]) -> None:
        super().__init__("heartbeat", self._beat, on_death=on_death)
        self._worker = worker
        self._renewed_at = time.monotonic()
        self._renewed_for = 0

    def start(self) -> None:
        self._renewed_at = time.monotonic()  # the worker has just registered
        super().start()

    def _beat(self) -> float:
        worker, now = self._worker, time.monotonic()
        identity = worker.identity.id
        worker.vitals.beat(identity)
        if now - self._renewed_at >= settings.LEASE_SECONDS / 3 or identity != self._renewed_for:
            self._renew(identity, now)
        if running := worker.recorder.running():
            asked = heartbeat.cancel_requests(worker.using, identity)
            worker.recorder.flag(asked, "cancel")
            write_progress(worker.using, [(held.job, held.progress) for held in running])
        worker.tally.flush_if_due()
        return min(TURN_SECONDS, settings.LEASE_SECONDS / 3)

    def _renew(self, identity: int, now: float) -> None:
        if heartbeat.renew(self._worker.using, identity, memory=resident_bytes() or None):
            self._renewed_at, self._renewed_for = now, identity
        elif identity == self._worker.identity.id:
            self._renewed_at = now
            self._worker.lease_lost(identity)

    @property
    def is_late(self) -> bool:
        """Whether the lease may be about to end, or to have ended: somebody else may start the jobs then.

        Also true while a renewal hangs, on a network that swallows everything or behind a lock.
        """
        return time.monotonic() - self._renewed_at >= settings.LEASE_SECONDS * TRUST

    def failed(self) -> None:
        """Show that the loop is alive: it is the database that is not."""
        self._worker.vitals.beat(self._worker.identity.id)
