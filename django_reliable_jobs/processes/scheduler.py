"""The scheduler: leads, ticks, sleeps until the next slot. Any number may run; one leads, the others stand by.

Four threads, each with a database connection of its own: the scheduler (in the process's main thread, or beside a
worker), its upkeep and the telling of alerts, which could be slow and must not make a slot late, and the listener,
which wakes it when a schedule is changed or a leader resigns. Moments are the database's: the host's clock decides
nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from queue import Empty, SimpleQueue

from django.db import Error as DatabaseError

from django_reliable_jobs import registry, signals
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import heartbeat, leader, reconcile, tick, wakeup
from django_reliable_jobs.engine.leader import Candidate
from django_reliable_jobs.engine.schedules import OFFICE
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.listener import Listener
from django_reliable_jobs.processes.loop import pause_after
from django_reliable_jobs.processes.tally import announce_cancelled
from django_reliable_jobs.processes.telling import Channel, Telling
from django_reliable_jobs.processes.upkeep import Upkeep, Watchdog

logger = logging.getLogger("django_reliable_jobs")

STANDBY_SECONDS = 1.0  # how often a scheduler that does not lead looks whether it may
HELD_SECONDS = 0.1  # how often it looks whether a due schedule is still in somebody's hands
TRUST = 0.8  # of a term, counted from before it was renewed: what is left is for clocks and round trips
PART_DIED = 70  # EX_SOFTWARE
TURN_SECONDS = 60.0  # the longest that a turn may take before the process looks as if it hung
UPKEEP_SECONDS = 300.0
PATIENCE = 1.0  # seconds, with somebody who changes a declared schedule while this process takes the office
FOLLOW_AGAIN_SECONDS = 60.0

WAKE, STOP = "wake", "stop"


class Scheduler:
    """One process's wish to lead. `run` returns the exit code: 0 after a stop, 70 if a part of it died."""

    def __init__(
        self, *, using: str, on_stuck: Callable[[], None] | None = None, channels: Sequence[Channel] = ()
    ) -> None:
        self.using = using
        self.identity = heartbeat.new_identity(socket.gethostname(), os.getpid())
        self.turns = 0
        self._turned_at = time.monotonic()
        self._number: int | None = None
        self._candidate = Candidate(name=OFFICE, identity=self.identity)
        self._stood_at = 0.0
        self._followed: int | None = None  # the term in which the rows followed the code of this process
        self._follows_from = 0.0
        self._failed_ticks = 0
        self._unknown: set[str] = set()  # tasks for which it gave way
        self._stands_from = 0.0
        self._inbox: SimpleQueue[str] = SimpleQueue()
        self._is_stopping = False
        self._exit_code = 0
        self._thread: threading.Thread | None = None
        channel = wakeup.SCHEDULES_CHANNEL
        self._listener = Listener(
            self, on_death=self._part_died, channel=channel, purpose="changes of schedules are seen"
        )
        self._upkeep = Upkeep(self, on_death=self._part_died)
        self._telling = Telling(self, channels, on_death=self._part_died)
        self._watchdog = Watchdog(self, on_stuck=on_stuck, on_death=self._part_died)

    # --- from other threads and signal handlers

    def request_stop(self) -> None:
        """Resign and return from `run`. Safe in a signal handler."""
        self._is_stopping = True
        self._inbox.put(STOP)

    def wake(self) -> None:
        """Look for due slots, or for a free office, now."""
        self._inbox.put(WAKE)

    def hears(self, payload: str) -> bool:
        """Return whether a notification is for this scheduler; all are."""
        return True

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it can trust what it knows: a process that was stopped can't."""
        is_fresh = time.monotonic() - self._stood_at < settings.LEADER_SECONDS * TRUST
        return self._candidate.term is not None and is_fresh

    @property
    def term_and_vacancy(self) -> tuple[int | None, tuple[datetime, datetime] | None]:
        """The term that it holds, and from when to when nobody led before it."""
        candidate = self._candidate
        return candidate.term, candidate.vacancy

    def own_threads(self) -> list[tuple[str, int | None, float, float]]:
        """Return name, number, last turn and longest turn (seconds) of each thread that must go on turning."""
        parts = ((self._upkeep, UPKEEP_SECONDS), (self._telling, UPKEEP_SECONDS))
        return [
            ("scheduler", self._number, self._turned_at, TURN_SECONDS),
            *((part.name, part.thread, part.turned_at, patience) for part, patience in parts),
        ]

    def start(self, on_end: Callable[[int], None]) -> None:
        """Run in a thread beside a worker; `on_end` is told the exit code."""
        self._thread = threading.Thread(target=lambda: on_end(self.run()), name="reliable-jobs-scheduler", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the end of a scheduler that was started beside a worker."""
        if self._thread is not None:
            self._thread.join(timeout)

    # --- the loop

    def run(self) -> int:
        """Lead when it can until asked to stop; return the exit code."""
        logger.info("scheduler %s stands by", self.identity)
        self._number = threading.get_ident()
        parts = (self._listener, self._upkeep, self._telling, self._watchdog)
        for part in parts:
            part.start()
        failures, has_added = 0, False
        while not self._is_stopping:
            self._turned_at = time.monotonic()
            try:
                connections.make_usable()
                if not has_added:
                    reconcile.add_missing(self.using)
                    has_added = True
                pause = self._turn()
                failures = 0
            except DatabaseError as error:
                failures += 1
                pause = self._lost_connection(error, failures)
            except Exception as error:
                self._part_died("loop", error)
                break
            self._sleep(pause)
        self._resign()
        for part in parts:
            part.stop(timeout=2)
        connections.close_all()
        return self._exit_code

    def _turn(self) -> float:
        """Stand or renew when it is time, tick while something is due; return the seconds until the next turn."""
        self.turns += 1
        is_due = time.monotonic() - self._stood_at >= settings.LEADER_SECONDS / 3
        if (not self.is_leader or is_due) and time.monotonic() >= self._stands_from:
            self._stand()
        if not self.is_leader:
            return STANDBY_SECONDS
        if self._followed != self._candidate.term and time.monotonic() >= self._follows_from:
            self._follow_code()
        done = self._tick()
        if done.due:
            return 0.0  # there may be more, and renewal may be due
        due = tick.seconds_until_due(self.using)
        renewal = self._stood_at + settings.LEADER_SECONDS / 3 - time.monotonic()
        until_due = renewal if due is None else due if due > 0 else HELD_SECONDS
        return max(min(renewal, settings.POLL_SECONDS, until_due), 0.0)

    def _follow_code(self) -> None:
        """Let the declarations of this process count, as it leads: those of an older release that stands by do not."""
        try:
            reconcile.sync(self.using, patience=PATIENCE)
            self._followed = self._candidate.term
        except DatabaseError as error:  # a lost connection is the tick's to notice
            self._follows_from = time.monotonic() + FOLLOW_AGAIN_SECONDS
            logger.warning("scheduler: the declared schedules are looked at later: %s", str(error).strip())

    def _tick(self) -> tick.Tick:
        try:
            done = tick.tick(self.using)
        except DatabaseError:
            self._failed_ticks += 1
            if self._failed_ticks > 1:
                self._give_way()
            raise
        self._failed_ticks = 0
        announce_cancelled(self.using, done.cancelled)
        if done.missed and signals.slot_missed.receivers:
            _send_missed(self.using, done.missed)
        if not done.unknown <= self._unknown:  # once for each: the others may be of a newer release, or not
            self._unknown |= done.unknown
            self._give_way()
        return done

    def _give_way(self) -> None:
        """Let another lead for a while, who may have the rights, or the tasks, that this process lacks."""
        logger.warning("scheduler %s can't decide all slots; it gives way to others, if there are", self.identity)
        self._stands_from = time.monotonic() + settings.LEADER_SECONDS
        self._resign()

    def _stand(self) -> None:
        was_leader, stood_at = self._candidate.term is not None, time.monotonic()
        self._candidate = leader.stand(self.using, self._candidate)
        is_leader = self._candidate.term is not None
        if is_leader:
            self._stood_at = stood_at
        if is_leader and not was_leader:
            logger.info("scheduler %s leads (term %s)", self.identity, self._candidate.term)
        elif was_leader and not is_leader:
            logger.warning("scheduler %s leads no more", self.identity)

    def _sleep(self, pause: float) -> None:
        try:
            self._inbox.get(timeout=pause) if pause else self._inbox.get_nowait()
            while True:
                self._inbox.get_nowait()
        except Empty:
            pass

    # --- faults and end

    def _lost_connection(self, error: DatabaseError, failures: int) -> float:
        pause = pause_after(failures)
        logger.warning("scheduler: the database did not answer (%s); again in %.1f s", str(error).strip(), pause)
        connections.close_all()
        self._candidate = replace(self._candidate, term=None)
        return pause

    def _part_died(self, name: str, error: BaseException) -> None:
        logger.critical("the %s of scheduler %s died; it stops", name, self.identity, exc_info=error)
        self._exit_code = PART_DIED
        self.request_stop()

    def _resign(self) -> None:
        try:
            leader.resign(self.using, self._candidate)
        except DatabaseError as error:
            logger.warning("scheduler %s could not resign, its term runs out: %s", self.identity, error)


def _send_missed(using: str, missed: Sequence[tick.Missed]) -> None:
    for each in missed:
        facts = {"first": each.slots.first, "last": each.slots.last, "count": each.slots.count}
        task, reason = registry.find(each.schedule.task), each.slots.reason
        signals.send(signals.slot_missed, task, schedule=each.schedule, reason=reason, using=using, **facts)
