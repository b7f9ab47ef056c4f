"""The worker: claims jobs, hands them to its pool, records how they ended."""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

from django.db import Error as DatabaseError
from django.db import InterfaceError, InternalError, OperationalError

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import heartbeat
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.transaction import own
from django_reliable_jobs.engine.wakeup import ANY_QUEUE
from django_reliable_jobs.processes import connections, registration
from django_reliable_jobs.processes.deadlines import Deadlines
from django_reliable_jobs.processes.heartbeat import Heartbeat
from django_reliable_jobs.processes.housekeeping import Housekeeping
from django_reliable_jobs.processes.inbox import Inbox
from django_reliable_jobs.processes.intake import Intake
from django_reliable_jobs.processes.listener import Listener
from django_reliable_jobs.processes.loop import pause_after
from django_reliable_jobs.processes.memory import resident_bytes
from django_reliable_jobs.processes.patience import Patience
from django_reliable_jobs.processes.pool import HeldJob, Pool
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.recorder import Recorder
from django_reliable_jobs.processes.shutdown import Shutdown
from django_reliable_jobs.processes.tally import Tally
from django_reliable_jobs.processes.vitals import Vitals

logger = logging.getLogger("django_reliable_jobs")

RECYCLED = 75  # EX_TEMPFAIL: start me again
PART_DIED = 70  # EX_SOFTWARE

STOPPING_PATIENCE = 5.0  # seconds for one turn while it stops
PARTS_SECONDS = 4.0  # for the threads that keep house to end
GATHER_SECONDS = 0.02  # a job that has ended waits at most so long for others to be recorded with
STUCK_SECONDS = 1.0  # unstarted jobs go back when they would not be run within so long

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
        self.threads = threads
        self.shutdown_timeout = shutdown_timeout
        self.jobs_left = max_jobs
        self.identity = heartbeat.new_identity(socket.gethostname(), os.getpid())
        self.vitals = vitals or Vitals.of_one()
        self.tally = Tally(using)
        self.recorder = Recorder(using, str(self.identity), on_settled=self.vitals.settled, on_written=self.tally.add)
        self.stops_asked = 0
        self.before_beginning: Callable[[], None] = lambda: None  # tried again until the database answers
        self.before_leaving: Callable[[], None] = lambda: None  # while the jobs that are to be cut still run
        self._burst = burst
        self._patience = Patience(self, is_limited=burst)
        self._max_memory = max_memory
        self._exit_code = 0
        self.is_patient = False
        self._thread: int | None = None
        self._lost_id: int | None = None
        self._last_report = time.monotonic()
        self._inbox: Inbox[HeldJob | ClaimedJob | str] = Inbox()
        self.pool = Pool(
            threads, using=using, report=self._inbox.put, on_start=self.vitals.started, on_death=self._part_died
        )
        self.heartbeat = Heartbeat(self, on_death=self._part_died)
        self._housekeeping = Housekeeping(self, on_death=self._part_died)
        self._listener = Listener(self, on_death=self._part_died)
        self._deadlines = Deadlines(self, on_death=self._part_died)
        self._intake = Intake(self, start=self._start, passed_over=self._housekeeping.claim_passed_over)

    # --- from other threads and signal handlers

    def request_stop(self) -> None:
        """Finish the running jobs and return from `run`; asked again, cut them now. Safe in a signal handler."""
        self.stops_asked += 1
        self._inbox.put_urgent(STOP)

    def wake(self) -> None:
        """Look for work now."""
        self._inbox.put_urgent(WAKE)

    def hears(self, queue_name: str) -> bool:
        """Return whether a notification of this queue is for this worker."""
        self._intake.notified = queue_name
        return queue_name == ANY_QUEUE or self.queues.serves(queue_name)

    def adopt(self, job: ClaimedJob) -> None:
        """Run a job that another thread of this process claimed."""
        self._inbox.put_urgent(job)

    def expect_orphans(self) -> None:
        """Look for jobs that a thread of this process may have claimed without hearing of it."""
        self._intake.expect_orphans()

    def lease_lost(self, worker_id: int) -> None:
        """Drop every job and go on under a new identity: this one was declared lost."""
        self._lost_id = worker_id
        self.tally.events["lost_leases"] += 1
        self.recorder.flag(None, "lost")
        self._inbox.put_urgent(LOST)

    @property
    def is_lease_in_doubt(self) -> bool:
        """Whether the lease could not be renewed for so long that another worker may soon take the jobs."""
        return self.heartbeat.is_late

    def own_threads(self) -> list[tuple[str, int | None, float, float]]:
        """Return name, number, last turn and longest turn (seconds) of each thread that must go on turning."""
        lease = settings.LEASE_SECONDS
        patience = STOPPING_PATIENCE if self.stops_asked else 2 * lease + settings.POLL_SECONDS
        return [
            ("worker", self._thread, self.vitals.turned_at, patience),
            ("heartbeat", self.heartbeat.thread, self.heartbeat.turned_at, lease),
            ("housekeeping", self._housekeeping.thread, self._housekeeping.turned_at, 10 * lease),
        ]

    def recycle(self, why: str, *, patiently: bool) -> None:
        """Stop with the exit code that asks for a fresh process; patiently: running jobs take the time they need."""
        if self._exit_code == 0 and not self.stops_asked:
            logger.warning("worker %s stops, for whoever watches it to start another: %s", self.identity, why)
            self._exit_code, self.is_patient = RECYCLED, patiently
            self.request_stop()
        elif self.is_patient and not patiently:
            logger.warning("worker %s loses its patience: %s", self.identity, why)
            self.is_patient = False

    def check_limits(self) -> None:
        """Recycle, after the running jobs, a process that has run --max-jobs or has grown over --max-memory."""
        if self.jobs_left is not None and self.jobs_left <= 0:
            self.recycle("it has run as many jobs as --max-jobs allows", patiently=True)
        elif self._max_memory is not None and (used := resident_bytes()) > self._max_memory:
            limit = self._max_memory >> 20
            self.recycle(f"it uses {used >> 20} MiB of memory (--max-memory {limit} MiB)", patiently=True)

    # --- the loop

    def run(self) -> int:
        """Work until asked to stop, or in a burst until nothing is left to do; return the exit code."""
        connections.watch_queries()
        gc.freeze()  # what was imported stays: no collection needs to look at it again
        self._thread = threading.get_ident()
        self.vitals.turned()
        if not (self._until_reached(self.before_beginning) and self._until_reached(self._register)):
            return self._patience.leave_unregistered()
        registration.introduce(self)
        self.pool.start()
        for part in (self.heartbeat, self._housekeeping, self._listener, self._deadlines):
            part.start()
        while not self.stops_asked:
            try:
                connections.make_usable()
                own(self.using)
                if not self._turn():
                    break
                self._patience.answered()
            except (DatabaseError, MemoryError) as error:  # a job may leave no memory for anybody, for a moment
                self._patience.failed(error)
        if self._patience.has_run_out:
            return Shutdown(self).leave_all()
        self._intake.take_in()
        cut = Shutdown(self).finish()
        logger.info("worker %s has stopped", self.identity)
        return self._exit_code or min(cut, 1)

    def _turn(self) -> bool:
        self.vitals.turned()
        self._gather()
        self.recorder.record_others(about_to_wait=self._intake.hand_out)
        wanted = self._intake.wanted()
        if self._intake.exchange(wanted):
            return True
        self._intake.take_in()
        if self._burst and self.recorder.is_empty and self._intake.has_nothing_left(since=self._last_report):
            return False
        self._wait(wanted)
        return True

    def _gather(self) -> None:
        surplus = self._intake.surplus
        self.collect(timeout=GATHER_SECONDS if surplus > 0 else 0, enough=max(surplus, 1))

    def _wait(self, wanted: int) -> None:
        if self.recorder.in_hand - self.threads > self._intake.speed.in_seconds(STUCK_SECONDS):
            self._intake.speed.reset()  # hold no more than there are threads
            self.recorder.release(self.pool.take_back())
        elif wanted <= 0:
            self.collect(timeout=STUCK_SECONDS)
        elif pause := self._intake.pause():
            if not self.collect(timeout=pause):
                self._intake.look_now()
            self._intake.speed.reset()  # it stood still for want of work, which says nothing of the next

    def collect(self, timeout: float, enough: int = 1) -> bool:
        """Take in what comes in `timeout` seconds, or until `enough` jobs have ended; return whether anything came."""
        completed = 0
        items = self._inbox.take(timeout=timeout, enough=enough, about_to_wait=self._intake.hand_out)
        for item in items:
            if isinstance(item, HeldJob):
                completed += 1
                self.recorder.add_ended(item)
            elif isinstance(item, ClaimedJob):
                self._start([item])
            elif item == WAKE:
                self._intake.wake()
            elif item == LOST and self._lost_id == self.identity.id:  # told again: it has started over
                self._start_over()
        self._intake.speed.note(completed)
        if completed:
            self._last_report = time.monotonic()
            self.jobs_left = None if self.jobs_left is None else self.jobs_left - completed
        return bool(items)

    def _start(self, jobs: Sequence[ClaimedJob]) -> None:
        # What is held already was found as an orphan while another thread handed it over.
        held = [HeldJob(job) for job in jobs if not self.recorder.holds(job.token)]
        self.recorder.hold(held)
        if self.is_lease_in_doubt or self._lost_id == self.identity.id:  # what was held before was flagged then
            self.recorder.flag([each.job.token for each in held], "lost")
        self.pool.submit(held)
        if self.recorder.in_hand <= self.threads:
            self.pool.hand_out()

    # --- faults

    def lost_connection(self, error: Exception, failures: int) -> None:
        """Drop this thread's connections and wait a little, longer with each failure in a row."""
        self.vitals.turned()
        pause = pause_after(failures)
        logger.warning("worker: the database did not answer (%s); again in %.1f s", str(error).strip(), pause)
        connections.close_all()
        self._intake.take_in()
        self._intake.forget()
        self.collect(timeout=pause)

    def _start_over(self) -> None:
        logger.error("worker %s was declared lost; it drops its jobs and starts over", self.identity)
        self.recorder.abandon(self.pool.take_back())
        self.identity = heartbeat.new_identity(self.identity.host, self.identity.pid)
        self._intake.forget()
        self._until_reached(self._register)

    def _part_died(self, name: str, error: BaseException) -> None:
        logger.critical("the %s of worker %s died; the process stops", name, self.identity, exc_info=error)
        self._exit_code = PART_DIED
        self.request_stop()

    # --- begin and end

    def _register(self) -> None:
        registration.register(self)

    def _until_reached(self, action: Callable[[], None]) -> bool:
        while not self.stops_asked:
            try:
                action()
                self._patience.answered()
                return True
            except (OperationalError, InternalError, InterfaceError) as error:  # InternalError: it is read-only
                self._patience.failed(error)
        return False

    def stop_parts(self) -> None:
        """End the threads that keep house, but the heartbeat; the pool ends after the jobs that it runs."""
        deadline = time.monotonic() + PARTS_SECONDS
        self.before_leaving()
        parts = (self._deadlines, self._housekeeping)
        for part in (self._listener, *parts):  # all are told before one is waited for; the listener holds nothing
            part.stop(timeout=0)
        for part in parts:
            part.stop(timeout=max(deadline - time.monotonic(), 0))
        self.pool.stop()
