"""The thread that does what any process may do for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import (
    claim,
    counters,
    endings_of_jobs,
    events,
    families,
    limited,
    limits,
    maintenance,
    waits,
)
from django_reliable_jobs.processes.loop import Loop
from django_reliable_jobs.processes.tally import announce_cancelled

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

SWEEP_SECONDS = 5.0
PRUNE_SECONDS = 60.0
PRUNE_BATCHES = 10
GAP = 2 / 3  # of a lease: in less, no lease that was renewed in time runs out
PATIENCE_SECONDS = 2.0  # in the line for the lock of a job that was passed over


class Housekeeping(Loop):
    """Rescues from lost workers, honours cancel requests, prunes; claims what SKIP LOCKED passes over."""

    def __init__(self, worker: Worker, *, on_death: Callable[[str, BaseException], None]) -> None:
        super().__init__("housekeeping", self._sweep, on_death=on_death)
        self._worker = worker
        self._passed_over: set[int] = set()
        self._reached_since: float | None = None
        self._reached_at = 0.0
        self._swept_at = 0.0
        self._pruned_at = time.monotonic()

    def claim_passed_over(self, job_id: int) -> None:
        """Claim this ready job with a waiting lock, and hand it to the worker."""
        self._passed_over.add(job_id)
        self.wake()

    def failed(self) -> None:
        self._worker.expect_orphans()

    def _sweep(self) -> float:
        using, now = self._worker.using, time.monotonic()
        while self._passed_over:
            job_id, worker_id = self._passed_over.pop(), self._worker.identity.id
            job = claim.claim_passed_over(using, worker_id, job_id, patience=PATIENCE_SECONDS)
            job = job or limited.claim_passed_over(using, worker_id, job_id, patience=PATIENCE_SECONDS)
            if job is not None:
                self._worker.adopt(job)
            self._reached()
        pause = min(SWEEP_SECONDS, settings.LEASE_SECONDS / 3)
        if now - self._swept_at < pause:
            return pause - (now - self._swept_at)
        self._swept_at = now
        announce_cancelled(using, maintenance.honour_cancel_requests(using).cancelled)
        if self._may_rescue() and (rescued := maintenance.rescue(using)):
            self._worker.tally.events["rescued"] += rescued
            self._worker.wake()
        if now - self._pruned_at >= PRUNE_SECONDS:
            self._pruned_at = now
            maintenance.resume_queues(using)
            limits.declare(using, missing_only=True)
            limits.prune_paces(using)
            counters.prune(using)
            endings_of_jobs.finish_missed(using)
            families.prune(using)
            waits.wake_all(using)
            events.prune(using)
            self._reached()
            for _ in range(PRUNE_BATCHES):
                if not maintenance.prune(using, batches=1):
                    break
                self._reached()
        return pause

    def _may_rescue(self) -> bool:
        """Return whether the database was reached, and wrote, for a whole lease: else the living look lost too."""
        return self._reached() >= settings.LEASE_SECONDS

    def _reached(self) -> float:
        """Note that the database has just answered; return for how many seconds it has done so without a break."""
        now = time.monotonic()
        # A gap: it was not heard of, as the server hung, or this process, and perhaps the host with all its others.
        has_gap = now - self._reached_at > GAP * settings.LEASE_SECONDS
        if self._reached_since is None or has_gap or self._has_failed_since(self._reached_since):
            self._reached_since = now
        self._reached_at = now
        return now - self._reached_since

    def _has_failed_since(self, moment: float) -> bool:
        # Looking for the lost only reads, which a server that takes no writes answers: the heartbeat knows better.
        return self.failed_since(moment) or self._worker.heartbeat.failed_since(moment)
