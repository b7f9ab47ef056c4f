"""The thread that keeps the lease and hears of cancel requests. It touches no job's row: no job can hold it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import heartbeat
from django_reliable_jobs.processes.loop import Loop

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

CANCEL_SECONDS = 1.0  # how often cancel requests are read while jobs run


class Heartbeat(Loop):
    """Renews three times in a lease; when it can't, ends the jobs before somebody else starts them."""

    def __init__(self, worker: Worker, *, on_death: Callable[[str, BaseException], None]) -> None:
        super().__init__("heartbeat", self._beat, on_death=on_death)
        self._worker = worker
        self._renewed_at = time.monotonic()
        self._renewed_for = 0

    def _beat(self) -> float:
        worker, now = self._worker, time.monotonic()
        identity = worker.identity.id
        if now - self._renewed_at >= settings.LEASE_SECONDS / 3 or identity != self._renewed_for:
            if heartbeat.renew(worker.using, identity):
                self._renewed_at, self._renewed_for = now, identity
            elif identity == worker.identity.id:
                worker.lease_lost()
                return 1.0
        running = worker.recorder.running()
        if not running:
            return max(settings.LEASE_SECONDS / 3 - (now - self._renewed_at), 0.05)
        asked = heartbeat.cancel_requests(worker.using, identity)
        if asked:
            worker.recorder.flag(asked, "cancel")
        return min(CANCEL_SECONDS, settings.LEASE_SECONDS / 3)
