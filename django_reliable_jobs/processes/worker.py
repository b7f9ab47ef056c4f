"""The worker: claims jobs, hands them to its pool, records how they ended."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from django.db import Error as DatabaseError
from django.db import OperationalError

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import claim, exchange, heartbeat, maintenance
from django_reliable_jobs.engine.claim import Arm, ClaimedJob, Head
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.deadlines import RECYCLE_AFTER, Deadlines
from django_reliable_jobs.processes.heartbeat import Heartbeat
from django_reliable_jobs.processes.housekeeping import Housekeeping
from django_reliable_jobs.processes.listener import Listener
from django_reliable_jobs.processes.loop import pause_after
from django_reliable_jobs.processes.memory import resident_bytes
from django_reliable_jobs.processes.pool import HeldJob, Pool
from django_reliable_jobs.processes.queues import QueueOrder, advanced, seated
from django_reliable_jobs.processes.recorder import Recorder
from django_reliable_jobs.processes.suspicion import Suspicion
from django_reliable_jobs.processes.vitals import Vitals

logger = logging.getLogger("django_reliable_jobs")

MOST_IN_HAND = 500
FIRST_PAUSE = 0.05  # seconds; doubles up to POLL_SECONDS while there is nothing to do
STUCK_SECONDS = 1.0  # unstarted jobs go back when every thread has been busy for so long
ORPHAN_SECONDS = 30.0  # how long after a lost connection a claim of ours may still commit

T = TypeVar("T")

RECYCLED = 75  # EX_TEMPFAIL: start me again
PART_DIED = 70  # EX_SOFTWARE

INSIST_SECONDS = 5.0  # before the end of a shutdown, the jobs that still run are pressed

WAKE, STOP, LOST = "wake", "stop", "lost"


class Worker:
    """One process's worth of work on one database. `run` returns the exit code: 0 if no job was cut."""

    def __init__(
        self,
        *,
        using: str,
        queues: QueueOrder,
        threads: int,
        burst: bool = False,
        shutdown_timeout: float = 25,
        max_jobs: int | None = None,
        max_memory: int | None = None,
        vitals: Vitals | None = None,
    ) -> None:
        self.using = using
        self.queues = queues
        self.burst = burst
        self.shutdown_timeout = shutdown_timeout
        self._max_jobs = max_jobs
        self._max_memory = max_memory
        self._ran = 0
        self.identity = heartbeat.new_identity(socket.gethostname(), os.getpid())
        self.recorder = Recorder(using, str(self.identity))
        self._inbox: SimpleQueue[HeldJob | ClaimedJob | str] = SimpleQueue()
        self.vitals = vitals or Vitals.of_one(threads)
        self._pool = Pool(threads, using=using, report=self._inbox.put, on_start=self.vitals.started)
        self._heartbeat = Heartbeat(self, on_death=self._part_died)
        self._housekeeping = Housekeeping(self, on_death=self._part_died)
        self._listener = Listener(self, on_death=self._part_died)
        self._deadlines = Deadlines(self, on_death=self._part_died)
        self._suspicion = Suspicion()
        self._stops_asked = 0
        self._exit_code = 0
        self._is_patient = False
        self._heads: list[Head] = []
        self._looked_at = self._look_at = 0.0
        self._is_fresh = False  # nothing was claimed since the last look
        self._pause = FIRST_PAUSE
        self._next_due: float | None = None
        self._idle_since: float | None = None
        self._completed = 0
        self._last_report = time.monotonic()
        self._orphans_until = 0.0

    # --- from other threads and signal handlers

    def request_stop(self) -> None:
        """Finish the running jobs and return from `run`; asked again, cut them now. Safe in a signal handler."""
        self._stops_asked += 1
        self._inbox.put(STOP)

    def wake(self) -> None:
        """Look for work now."""
        self._inbox.put(WAKE)

    def adopt(self, job: ClaimedJob) -> None:
        """Run a job that another thread of this process claimed."""
        self._inbox.put(job)

    def lease_lost(self) -> None:
        """Drop every job and go on under a new identity: the old one was declared lost."""
        self.recorder.flag(None, "lost")
        self._inbox.put(LOST)

    def recycle(self, why: str, *, patiently: bool) -> None:
        """Stop with the exit code that asks for a fresh process: once the running jobs have ended, or as if asked to
        stop.
        """
        if self._exit_code == 0 and not self._stops_asked:
            logger.warning("worker %s is recycled: %s", self.identity, why)
            self._exit_code, self._is_patient = RECYCLED, patiently
            self.request_stop()

    def check_limits(self) -> None:
        """Recycle, after the running jobs, a process that has run --max-jobs or has grown over --max-memory."""
        if self._max_jobs is not None and self._ran >= self._max_jobs:
            self.recycle(f"it has run {self._ran} jobs (--max-jobs)", patiently=True)
        elif self._max_memory is not None and (used := resident_bytes()) > self._max_memory:
            limit = self._max_memory >> 20
            self.recycle(f"it uses {used >> 20} MiB of memory (--max-memory {limit} MiB)", patiently=True)

    # --- the loop

    def run(self) -> int:
        """Work until asked to stop, or in a burst until nothing is left to do; return the exit code."""
        connections.watch_queries()
        self._until_reached(self._register)
        logger.info("worker %s serves %s with %s threads", self.identity, self._served(), self._pool.threads)
        self._pool.start()
        for part in (self._heartbeat, self._housekeeping, self._listener, self._deadlines):
            part.start()
        failures = 0
        while not self._stops_asked:
            try:
                connections.make_usable()
                if self._turn() is False:
                    break
                failures = 0
            except DatabaseError as error:
                failures += 1
                self._lost_connection(error, failures)
        return self._finish()

    def _turn(self) -> bool:
        self.vitals.turned()
        self._collect(timeout=0)
        self.recorder.record_others()
        wanted = self._wanted()
        if wanted > 0 and time.monotonic() >= self._look_at:
            self._look()
        seats = self.queues.seats(self._heads, wanted) if wanted > 0 else []
        arms = self.queues.arms(self._heads, seats, wanted) if wanted > 0 else []
        successes = self.recorder.successes()
        if arms or successes:
            self._exchange(arms, seats, wanted)
            return True
        if self.burst and self.recorder.is_empty and not self._heads and self._looked_at > self._last_report:
            return False
        self._wait(wanted)
        return True

    def _look(self) -> None:
        if time.monotonic() < self._orphans_until:
            self._adopt_orphans()
        heads, self._next_due = claim.look(self.using)
        if self._next_due is not None and self._next_due <= 0:
            if maintenance.promote(self.using):
                heads, self._next_due = claim.look(self.using)
            else:  # somebody else promotes them at this moment
                self._next_due = FIRST_PAUSE
        self._heads = [head for head in heads if self.queues.serves(head.queue_name)]
        self._is_fresh = True
        self._looked_at = time.monotonic()
        self._look_at = self._looked_at + settings.POLL_SECONDS

    def _exchange(self, arms: list[Arm], seats: list[str], wanted: int) -> None:
        limit = len(seats) or wanted
        free = max(self._pool.threads - self.recorder.in_hand, 0)
        successes = self.recorder.successes()
        written, claimed = exchange.exchange(
            self.using,
            self.identity.id,
            successes,
            arms,
            limit=limit if arms else 0,
            free=free,
            alone=self._suspicion.may_claim(self.recorder.in_hand, free),
        )
        self.recorder.settle(successes, written)
        for job in seated(claimed, seats):
            self._start(job)
        if not arms:
            return
        if free and self._is_fresh:
            self._report_passed_over(arms, claimed)
        self._is_fresh = False
        self._heads = advanced(self._heads, claimed)
        self._after_claim(len(claimed), limit)

    def _after_claim(self, claimed: int, limit: int) -> None:
        if claimed:
            self._pause = FIRST_PAUSE
        if claimed < limit:
            # Short: look again at once. Nothing: what is there is locked by others, so look again after a pause.
            self._look_at = 0.0 if claimed else self._look_at
            self._heads, self._looked_at = ([], 0.0) if not claimed else (self._heads, self._looked_at)
        elif limit > self._pool.threads and self._idle_since and time.monotonic() - self._idle_since > 1:
            heartbeat.mark_idle(self.using, self.identity.id, idle=False)
            self._idle_since = None

    def _start(self, job: ClaimedJob) -> None:
        held = HeldJob(job)
        self.recorder.hold(held)
        self._pool.submit(held)

    def _wanted(self) -> int:
        # Twice what ended since the last exchange: one half for the batch that runs while the next exchange is under
        # way. Long jobs end rarely, so that nothing is held beyond the threads.
        target = max(self._pool.threads, min(2 * self._completed, MOST_IN_HAND))
        if self._max_jobs is not None:
            target = min(target, self._max_jobs - self._ran)
        if self._suspicion.holds_back(self._heads, self.recorder):
            return 0
        return target - self.recorder.in_hand

    def _wait(self, wanted: int) -> None:
        if self.recorder.in_hand > self._pool.threads and time.monotonic() - self._last_report > STUCK_SECONDS:
            self._completed = 0  # hold no more than there are threads
            self.recorder.release(self._pool.take_back())
            return
        if wanted <= 0:
            self._collect(timeout=STUCK_SECONDS)
            return
        if self._idle_since is None:
            # Marked first, then looked once more: an enqueuer that saw no idle worker has committed before that look.
            heartbeat.mark_idle(self.using, self.identity.id, idle=True)
            self._idle_since = time.monotonic()
            self._look_at = 0.0
            return
        pause = self._pause
        self._pause = min(self._pause * 2, settings.POLL_SECONDS)
        if self._next_due is not None:
            pause = min(pause, max(self._next_due, 0.001))
        if not self._collect(timeout=pause):
            self._look_at = 0.0

    def _collect(self, timeout: float) -> bool:
        """Take in what the pool and the other threads report; return whether anything came within `timeout`."""
        came = False
        completed = 0
        try:
            item = self._inbox.get(timeout=timeout) if timeout else self._inbox.get_nowait()
            while True:
                came = True
                if isinstance(item, HeldJob):
                    completed += 1
                    self.recorder.add_ended(item)
                elif isinstance(item, ClaimedJob):
                    self._start(item)
                elif item == WAKE:
                    self._look_at, self._pause = 0.0, FIRST_PAUSE
                elif item == LOST:
                    self._start_over()
                item = self._inbox.get_nowait()
        except Empty:
            pass
        if completed:
            self._ran += completed
            self._completed, self._last_report = completed, time.monotonic()
        return came

    def _report_passed_over(self, arms: list[Arm], claimed: list[ClaimedJob]) -> None:
        """Have the housekeeping claim what is due for a second and was reached by this claim, but not taken."""
        taken = {job.id for job in claimed}
        place = {(arm.queue_name, arm.priority): number for number, arm in enumerate(arms)}
        reached = max((place[job.queue_name, job.priority] for job in claimed), default=len(arms))
        for head in self._heads:
            if head.waited > 1 and head.id not in taken and place.get(head[:2], len(arms)) <= reached:
                self._housekeeping.claim_passed_over(head.id)

    # --- faults

    def _lost_connection(self, error: DatabaseError, failures: int) -> None:
        pause = pause_after(failures)
        logger.warning("worker: the database did not answer (%s); again in %.1f s", str(error).strip(), pause)
        connections.close_all()
        self._orphans_until = time.monotonic() + ORPHAN_SECONDS
        self._heads, self._look_at, self._idle_since = [], 0.0, None
        self._collect(timeout=pause)

    def _adopt_orphans(self) -> None:
        # A claim whose answer was lost with its connection: ours by token and worker, but nobody runs it.
        for job in claim.find_orphans(self.using, self.identity.id, self.recorder.tokens()):
            self._start(job)

    def _start_over(self) -> None:
        logger.error("worker %s was declared lost; it drops its jobs and starts over", self.identity)
        self.recorder.abandon()
        self._pool.take_back()
        self.identity = heartbeat.new_identity(self.identity.host, self.identity.pid)
        self._idle_since = None
        self._until_reached(self._register)

    def _part_died(self, name: str, error: BaseException) -> None:
        logger.critical("the %s of worker %s died; the process stops", name, self.identity, exc_info=error)
        self._exit_code = PART_DIED
        self.request_stop()

    # --- begin and end

    def _register(self) -> None:
        heartbeat.register(
            self.using,
            self.identity,
            queues=self.queues.names,
            excluded=sorted(self.queues.excluded),
            threads=self._pool.threads,
        )

    def _served(self) -> str:
        names = self.queues.names
        served = "all queues" if names is None else f"the queues {', '.join(names)}"
        return f"{served} except {', '.join(sorted(self.queues.excluded))}" if self.queues.excluded else served

    def _until_reached(self, action: Callable[[], None]) -> None:
        failures = 0
        while not self._stops_asked:
            try:
                return action()
            except OperationalError as error:
                failures += 1
                self._lost_connection(error, failures)

    def _finish(self) -> int:
        """Record what still ends within the time allowed, give back the rest, leave the list of workers."""
        deadline = time.monotonic() + self.shutdown_timeout
        self._try(deadline, lambda: heartbeat.mark_stopping(self.using, self.identity.id))
        self._try(deadline, lambda: self.recorder.release(self._pool.take_back()))
        while self._is_patient and not self.recorder.is_empty and self._stops_asked == 1:
            self._drain(time.monotonic() + self.shutdown_timeout)
        stops, deadline = self._stops_asked, time.monotonic() + self.shutdown_timeout
        self.recorder.flag(None, "shutdown", insists=False)
        insist_at = deadline - min(INSIST_SECONDS, self.shutdown_timeout / 4)
        while not self._only_stuck_left() and time.monotonic() < deadline and self._stops_asked == stops:
            self._drain(deadline)
            if time.monotonic() >= insist_at:
                self.recorder.flag(None, "shutdown")
        return self._leave()

    def _drain(self, deadline: float) -> None:
        self.vitals.turned()
        self._try(deadline, self._record)
        self._collect(timeout=min(0.1, max(deadline - time.monotonic(), 0.001)))

    def _only_stuck_left(self) -> bool:
        """Whether nothing is left but jobs that were pressed in vain."""
        limit = time.monotonic() - RECYCLE_AFTER
        stuck = [held for held in self.recorder.running() if held.flag.insists and held.flag.raised_at < limit]
        return self.recorder.in_hand == len(stuck) and self.recorder.all_recorded

    def _leave(self) -> int:
        grace = time.monotonic() + 5
        self._try(grace, self._record)
        self._listener.stop(timeout=0)  # it holds nothing
        self._deadlines.stop()
        self._housekeeping.stop()
        self._pool.stop()
        cut = self._try(grace, self.recorder.cut_running) or 0
        if cut:
            logger.warning("worker %s cut %s running jobs", self.identity, cut)
        self._heartbeat.stop()
        self._try(grace, lambda: heartbeat.deregister(self.using, self.identity.id))
        connections.close_all()
        return self._exit_code or (1 if cut or not self.recorder.is_empty else 0)

    def _record(self) -> None:
        self.recorder.record_others()
        successes = self.recorder.successes()
        if successes:
            written, _ = exchange.exchange(self.using, self.identity.id, successes)
            self.recorder.settle(successes, written)

    def _try(self, deadline: float, action: Callable[[], T]) -> T | None:
        failures = 0
        while True:
            try:
                return action()
            except DatabaseError as error:
                failures += 1
                if time.monotonic() + pause_after(failures) > deadline:
                    logger.error(
                        "worker %s could not reach the database to its end: %s",
                        self.identity,
                        error,
                    )
                    return None
                self._lost_connection(error, failures)
