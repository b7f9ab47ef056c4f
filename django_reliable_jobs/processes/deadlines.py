"""The thread that ends attempts which should end, step by step.

Whatever the reason (timeout, cancel, a lost lease, a shutdown that runs out of time), in this order and never later
steps first: the flag, which safe points look at; then every query of the job is a safe point too; then the running
query is cancelled; then an interruption is raised in the task's code, or its coroutine is cancelled; then connections
on which it still waits are cut; last, for a job that ignores it all, the process is recycled, after the other jobs had
their time.

The worker's own threads are watched too: one that hangs in its connection has it cut under it.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from django_reliable_jobs import registry
from django_reliable_jobs.conf import settings
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.loop import Loop
from django_reliable_jobs.processes.pool import HeldJob

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

logger = logging.getLogger("django_reliable_jobs")

CHECK_SECONDS = 0.2
CANCEL_QUERY_AFTER = 1.0  # seconds after the flag was raised and insists
INTERRUPT_AFTER = 3.0
INTERRUPT_EVERY = 2.0
CUT_AFTER = 6.0
RECYCLE_AFTER = 12.0
HANG_SECONDS = 30.0  # beyond two leases
HANG_CHECKED_SECONDS = 5.0
CUT_CHECKED_SECONDS = 1.0
PART_DIED = 70  # EX_SOFTWARE


class Deadlines(Loop):
    """Looks at the running jobs; touches no database of its own."""

    def __init__(self, worker: Worker, *, on_death: Callable[[str, BaseException], None]) -> None:
        super().__init__("deadlines", self._check, on_death=on_death)
        self._worker = worker
        self._last_step: dict[int, float] = {}
        self._silent_checks = 0
        self._hanging: Counter[str] = Counter()  # by thread: for how many checks it has hung

    def _check(self) -> float:
        now = time.monotonic()
        self._worker.check_limits()
        self._watch_worker(now)
        if self._worker.is_lease_in_doubt:
            self._worker.recorder.flag(None, "lost")
        running = self._worker.recorder.in_threads()
        for held in running:
            limit = _timeout_of(held)
            if held.flag.reason is None and limit and held.started and now - held.started > limit:
                logger.warning("job %s (%s) ran longer than its timeout of %s s", held.job.id, held.job.task, limit)
                self._worker.recorder.flag([held.job.token], "timeout")
            deadline = held.flag.step_deadline
            if held.flag.reason is None and deadline is not None and now > deadline:
                logger.warning("a step of job %s (%s) ran longer than its timeout", held.job.id, held.job.task)
                self._worker.recorder.flag([held.job.token], "step")
            if held.flag.reason is not None and held.flag.insists:
                self._press(held, now)
        tokens = {held.job.token for held in running}
        self._last_step = {token: at for token, at in self._last_step.items() if token in tokens}
        self._cut_hanging(now)
        return CHECK_SECONDS

    def _watch_worker(self, now: float) -> None:
        """End the process if the worker's own thread hangs, as behind a network that swallows everything.

        Counted in checks, so that a process that was stopped for long is not taken for one that hangs.
        """
        silent = now - (self._worker.vitals.turned_at or now)
        self._silent_checks = self._silent_checks + 1 if silent > 2 * settings.LEASE_SECONDS + HANG_SECONDS else 0
        if self._silent_checks * CHECK_SECONDS >= HANG_CHECKED_SECONDS:
            logger.critical("the worker's thread has not turned for %.0f s; the process ends", silent)
            os._exit(PART_DIED)

    def _press(self, held: HeldJob, now: float) -> None:
        pressed, token = now - held.flag.raised_at, held.job.token
        if pressed < CANCEL_QUERY_AFTER or now - self._last_step.get(token, 0.0) < INTERRUPT_EVERY:
            return
        self._last_step[token] = now
        held.cancel_query()
        if pressed >= INTERRUPT_AFTER:
            held.interrupt()
        if pressed >= CUT_AFTER:
            held.cut_connections()
        if pressed >= RECYCLE_AFTER:
            why = f"job {held.job.id} ({held.job.task}) ignores that it should end ({held.flag.reason})"
            self._worker.recycle(why, patiently=False)

    def _cut_hanging(self, now: float) -> None:
        for name, thread, turned_at, patience in self._worker.own_threads():
            if thread is None or now - turned_at <= patience:
                self._hanging.pop(name, None)
                continue
            self._hanging[name] += 1
            if self._hanging[name] * CHECK_SECONDS >= CUT_CHECKED_SECONDS and connections.cut(thread):
                logger.error("the %s has waited %.0f s for the database: connection cut", name, now - turned_at)
                self._hanging.pop(name)


def _timeout_of(held: HeldJob) -> float | None:
    task = registry.find(held.job.task)
    return task.timeout.total_seconds() if task is not None and task.timeout is not None else None
