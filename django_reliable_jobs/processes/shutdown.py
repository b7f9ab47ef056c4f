"""How a worker ends: what still runs gets its time, the rest is given back, and its lease with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from django.db import Error as DatabaseError

from django_reliable_jobs.engine import exchange, heartbeat
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.deadlines import RECYCLE_AFTER
from django_reliable_jobs.processes.loop import pause_after

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

logger = logging.getLogger("django_reliable_jobs")

T = TypeVar("T")

INSIST_SECONDS = 5.0  # before the end of the time allowed, the jobs that still run are pressed
GRACE_SECONDS = 5.0  # for the last writes
LAST_SECONDS = 2.0  # of it, for what is given back at the very end


class Shutdown:
    """The last phase of a worker, on the worker's own thread. A further request to stop hurries it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._recorder = worker.recorder

    def finish(self) -> int:
        """Let running jobs end, within the time allowed or (patient) in their own; return how many were cut."""
        worker = self._worker
        deadline = time.monotonic() + worker.shutdown_timeout
        self._try(deadline, lambda: heartbeat.mark_stopping(worker.using, worker.identity.id))
        self._try(deadline, lambda: self._recorder.release(worker.take_back()))
        while worker.is_patient and not self._recorder.is_empty and worker.stops_asked == 1:
            self._drain(time.monotonic() + worker.shutdown_timeout)
        # Not what was asked by now: a second request may have come since the first was seen, and it is to hurry.
        stops = min(worker.stops_asked, 2 if worker.is_patient else 1)
        deadline = time.monotonic() + worker.shutdown_timeout
        self._recorder.flag(None, "shutdown", insists=False)
        if running := self._recorder.in_hand:
            logger.info(
                "worker %s stops: it waits for its running jobs (%s), at most %.0f s; ask again to give them back now",
                *(worker.identity, running, worker.shutdown_timeout),
            )
        insist_at = deadline - min(INSIST_SECONDS, worker.shutdown_timeout / 4)
        while not self._only_stuck_left() and time.monotonic() < deadline and worker.stops_asked <= stops:
            self._drain(deadline)
            if time.monotonic() >= insist_at:
                self._recorder.flag(None, "shutdown")
        return self._leave()

    def _drain(self, deadline: float) -> None:
        self._worker.vitals.turned()
        self._try(deadline, self._record)
        self._worker.collect(timeout=min(0.1, max(deadline - time.monotonic(), 0.001)))

    def _only_stuck_left(self) -> bool:
        """Return whether nothing is left but jobs that were pressed in vain."""
        limit = time.monotonic() - RECYCLE_AFTER
        stuck = [held for held in self._recorder.in_threads() if held.flag.insists and held.flag.raised_at < limit]
        return self._recorder.in_hand == len(stuck) and self._recorder.all_recorded

    def _leave(self) -> int:
        worker, grace = self._worker, time.monotonic() + GRACE_SECONDS
        self._try(grace, self._record)
        worker.stop_parts()
        grace = max(grace, time.monotonic() + LAST_SECONDS)
        worker.collect(timeout=0)  # what the housekeeping had claimed
        self._try(grace, lambda: self._recorder.release(worker.take_back()))
        # Last: from here on a job that was cut may run elsewhere, and this process has nothing to do but exit.
        cut = self._recorder.cut_running()
        self._try(grace, self._recorder.record_others)
        if cut:
            logger.warning("worker %s gave back jobs that still ran: %s", worker.identity, cut)
        self._try(grace, worker.tally.flush)
        self._try(grace, lambda: heartbeat.deregister(worker.using, worker.identity.id))
        connections.close_all()
        return cut if self._recorder.is_empty else max(cut, 1)

    def _record(self) -> None:
        self._recorder.record_others()
        successes = self._recorder.successes()
        if successes:
            try:
                written, _ = exchange.exchange(self._worker.using, self._worker.identity.id, successes)
            except DatabaseError as error:
                self._recorder.record_each_success(error)
                return
            self._recorder.settle(successes, written)

    def _try(self, deadline: float, action: Callable[[], T]) -> T | None:
        failures = 0
        while True:
            try:
                return action()
            except DatabaseError as error:
                failures += 1
                if time.monotonic() + pause_after(failures) > deadline:
                    logger.error("worker %s could not reach the database to its end: %s", self._worker.identity, error)
                    return None
                self._worker.lost_connection(error, failures)
