"""How a worker ends: what still runs gets its time, the rest is given back, and its lease with it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
ANSWER_SECONDS = 5.0  # for the server to say that it has what was given back, while the jobs that were cut go on


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
        self._try(deadline, lambda: self._recorder.release(worker.pool.take_back()))
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

    def leave_all(self) -> int:
        """End without a word to a database that does not answer; what is in hand is rescued from here."""
        self._recorder.flag(None, "lost")
        self._worker.stop_parts()
        self._worker.heartbeat.stop(timeout=0)
        connections.close_all()
        return 1

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
        worker.stop_parts()  # the heartbeat goes on: the lease is to last until all is given back
        worker.collect(timeout=0)  # what the housekeeping had claimed
        self._try(grace, lambda: self._recorder.release(worker.pool.take_back()))
        cut = self._cut(max(grace, time.monotonic() + LAST_SECONDS))
        # A job that was cut may run elsewhere from here on, and this process has nothing to do but exit.
        patience = 0.0 if cut else grace
        with _ends_process_after(ANSWER_SECONDS) if cut else nullcontext():
            self._try(patience, lambda: heartbeat.deregister(worker.using, worker.identity.id))
            self._try(patience, worker.tally.flush)
        worker.heartbeat.stop(timeout=0.0 if cut else 1.0)
        connections.close_all()
        return cut if self._recorder.is_empty else max(cut, 1)

    def _cut(self, grace: float) -> int:
        """Give back what still runs, once it can do nothing more in the database; return how many jobs that were."""
        worker, recorder = self._worker, self._recorder
        cut = recorder.cut_running()
        _halt([held.thread for held in recorder.in_threads() + cut if held.thread is not None])
        while not recorder.is_empty and time.monotonic() < grace:
            self._try(grace, self._give_back if cut else self._record)
            worker.collect(timeout=0.02)  # what had ended a moment before, and rows that are locked for a moment
        if cut:
            logger.warning("worker %s gave back jobs that still ran: %s", worker.identity, len(cut))
        return len(cut)

    def _give_back(self) -> None:
        with _ends_process_after(ANSWER_SECONDS):
            self._record()

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
            except (DatabaseError, MemoryError) as error:
                failures += 1
                if time.monotonic() + pause_after(failures) > deadline:
                    logger.error("worker %s could not reach the database to its end: %s", self._worker.identity, error)
                    return None
                self._worker.lost_connection(error, failures)


def _halt(threads: Sequence[int]) -> None:
    halts = [threading.Thread(target=connections.halt, args=[thread], daemon=True) for thread in threads]
    for halt in halts:
        halt.start()
    deadline = time.monotonic() + connections.HALT_SECONDS
    for halt in halts:
        halt.join(max(deadline - time.monotonic(), 0.0))


@contextmanager
def _ends_process_after(seconds: float) -> Iterator[None]:
    """End the process if the block takes longer: on a way that swallows every answer, what was given back may run
    elsewhere already.
    """
    timer = threading.Timer(seconds, os._exit, [1])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
