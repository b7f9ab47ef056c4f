"""`--processes N`, or several databases: spawns workers, watches them from outside, rescues the jobs of a dead one at
once, starts another.

Spawned, never forked: a child opens its own connections, to the one database that it serves. The supervisor opens one
of its own only to rescue, in a thread: a database that does not answer holds up the children of no other. A child that
loses its supervisor stops as if asked to (its end of a pipe closes), so that no fleet runs on unwatched.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import maintenance
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.memory import resident_bytes
from django_reliable_jobs.processes.vitals import ENVIRONMENT, Vitals
from django_reliable_jobs.processes.worker import RECYCLED

logger = logging.getLogger("django_reliable_jobs")

WATCH_SECONDS = 0.2
HEALTHY_SECONDS = 10.0  # a child that lived for so long starts its line of quick deaths anew
LONGEST_BACKOFF = 30.0
BURST_TRIES = 3  # for a child of a burst to start at all
HARD_FACTOR = 1.5  # at so many times --max-memory a child is killed, finished or not
KILL_AFTER = 15.0  # seconds that a child gets beyond its own shutdown timeout
RESCUE_SECONDS = 10.0  # at the end, for a database to answer; what is not taken back waits for its lease to run out
PARENT_PIPE = "RELIABLE_JOBS_PARENT"  # the file descriptor that closes when the supervisor is gone


class Child:
    """One place in the fleet: a worker process, its vitals, and the process that follows it."""

    def __init__(self, number: int, command: Sequence[str], vitals: Path, *, using: str, where: str) -> None:
        self.number = number
        self.using = using
        self.where = where  # which database, where there are several
        self.rescue: threading.Thread | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at = 0.0
        self.started_at = 0.0
        self.quick_deaths = 0
        self.killed_because: str | None = None
        self._command = command
        self._path = vitals
        self.vitals = Vitals.create(vitals)

    def start(self, parent_pipe: int) -> None:
        self.vitals = Vitals.create(self._path)
        environment = {**os.environ, ENVIRONMENT: str(self._path), PARENT_PIPE: str(parent_pipe)}
        # A process group of its own: Ctrl-C in a terminal reaches the supervisor alone, which passes it on once.
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            self._command, env=environment, pass_fds=[parent_pipe], process_group=0
        )
        self.started_at, self.killed_because = time.monotonic(), None
        if self.where:
            logger.info("worker process %s%s starts", self.process.pid, self.where)

    def kill(self, why: str) -> None:
        """End it with SIGKILL; `why` is kept with the attempts of its jobs."""
        if self.process is not None and self.process.poll() is None:
            logger.error("worker process %s%s is killed: %s", self.process.pid, self.where, why)
            self.killed_because = why
            self.process.kill()

    @property
    def is_rescuing(self) -> bool:
        """Whether the jobs of its last process are being taken back."""
        return self.rescue is not None and self.rescue.is_alive()

    def is_silent(self) -> bool:
        """Return whether one of its loops has not turned for so long that it must hang, whatever its process looks
        like.
        """
        limit = time.monotonic() - max(2 * settings.LEASE_SECONDS, 5)
        alive = [at for at in (self.vitals.turned_at, self.vitals.beat_at) if at]
        return any(at < limit for at in alive) if alive else self.started_at < limit - 60

    def cause_of_death(self, code: int) -> str:
        if self.killed_because:
            return self.killed_because
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"its process exited with code {code}"


class Supervisor:
    """Keeps `processes` children of each database running; `run` returns 0, or 1 if a child had to be cut at the end.

    `commands`: what the children of a database run, by its alias.
    """

    def __init__(
        self,
        *,
        commands: Mapping[str, Sequence[str]],
        processes: int,
        shutdown_timeout: float,
        max_memory: int | None = None,
        burst: bool = False,
    ) -> None:
        self.databases = list(commands)
        self._burst = burst
        self._max_memory = max_memory
        self._shutdown_timeout = shutdown_timeout
        self._stops_asked = 0
        self._stops_passed_on = 0
        self._kill_at = float("inf")
        self._worst_code = 0
        self._woken = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="reliable-jobs-")
        self._pipe = os.pipe()
        os.set_inheritable(self._pipe[0], True)
        folder = Path(self._folder.name)
        places = [using for using in self.databases for _ in range(processes)]
        self._children = [
            Child(number, commands[using], folder / str(number), using=using, where=self._where(using))
            for number, using in enumerate(places)
        ]
        self._rescues: list[threading.Thread] = []

    def request_stop(self) -> None:
        """Pass the wish on to every child; asked again, they hurry. Safe in a signal handler."""
        self._stops_asked += 1

    def complaints(self) -> list[str]:
        """Return what is wrong with the children; one that starts anew after a fault is not there for a moment."""
        children = list(self._children)
        hanging = [child for child in children if child.process is not None and child.is_silent()]
        dying = [child for child in children if child.process is None and child.quick_deaths > 1]
        return [f"worker process {child.number}{child.where} hangs" for child in hanging] + [
            f"worker process {child.number}{child.where} dies as soon as it starts" for child in dying
        ]

    def run(self) -> int:
        """Watch until asked to stop, or in a burst until every child has nothing left to do."""
        logger.info("supervisor %s starts %s worker processes", os.getpid(), len(self._children))
        try:
            while self._children and not (self._stops_asked and all(c.process is None for c in self._children)):
                for child in list(self._children):
                    self._watch(child)
                self._pass_on_stop()
                self._woken.wait(WATCH_SECONDS)
        finally:
            for child in self._children:
                child.kill("its supervisor ended")
            deadline = time.monotonic() + RESCUE_SECONDS
            for rescue in self._rescues:
                rescue.join(max(deadline - time.monotonic(), 0))
            self._folder.cleanup()
        return self._worst_code

    def _watch(self, child: Child) -> None:
        if child.process is None:
            # Not before its jobs are taken back: a successor in a burst would find nothing to do.
            if not child.is_rescuing and not self._stops_asked and time.monotonic() >= child.start_at:
                child.start(self._pipe[0])
            return
        code = child.process.poll()
        if code is not None:
            self._bury(child, code)
        elif child.is_silent():
            child.kill("its loop or its heartbeat did not turn any more")
        elif self._max_memory and resident_bytes(child.process.pid) > self._max_memory * HARD_FACTOR:
            child.kill(f"it used more than {HARD_FACTOR} times --max-memory ({self._max_memory >> 20} MiB)")
        elif time.monotonic() > self._kill_at:
            self._worst_code = 1
            child.kill("it did not end within the shutdown timeout")

    def _bury(self, child: Child, code: int) -> None:
        cause, lived = child.cause_of_death(code), time.monotonic() - child.started_at
        child.process = None
        if child.vitals.worker_id:
            self._rescues = [rescue for rescue in self._rescues if rescue.is_alive()]
            self._rescues.append(_rescuing(child, cause))
        if self._stops_asked or (self._burst and (code == 0 or child.vitals.has_given_up)):
            # One that was stopped before it had begun has cut nothing.
            was_early = code == -signal.SIGTERM and not child.vitals.worker_id
            self._worst_code = max(self._worst_code, 1 if code and not was_early else 0)
            self._children.remove(child)
            return
        child.quick_deaths = child.quick_deaths + 1 if lived < HEALTHY_SECONDS else 0
        if self._burst and child.quick_deaths >= BURST_TRIES and not child.vitals.worker_id:
            logger.error("a worker process%s can't start (%s); the burst goes on without it", child.where, cause)
            self._worst_code = 1
            self._children.remove(child)
            return
        quick = code in (0, RECYCLED) or child.quick_deaths == 0
        backoff = 0.0 if quick else min(0.25 * 2.0 ** min(child.quick_deaths, 10), LONGEST_BACKOFF)
        log = logger.info if code in (0, RECYCLED) else logger.error
        log("worker process%s ended: %s; the next one starts in %.1f s", child.where, cause, backoff)
        child.start_at = time.monotonic() + backoff

    def _where(self, using: str) -> str:
        return f" (database {using!r})" if len(self.databases) > 1 else ""

    def _pass_on_stop(self) -> None:
        while self._stops_passed_on < self._stops_asked:
            self._stops_passed_on += 1
            self._kill_at = min(self._kill_at, time.monotonic() + self._shutdown_timeout + KILL_AFTER)
            for child in self._children:
                if child.process is not None:
                    child.process.send_signal(signal.SIGTERM)


def _rescuing(child: Child, cause: str) -> threading.Thread:
    """Begin to take back the jobs of a dead child, in a thread."""
    # Read now: the vitals of its successor stand at the same place.
    worker_id, started = child.vitals.worker_id, child.vitals.started_tokens

    def rescue() -> None:
        try:
            count = maintenance.rescue_dead(child.using, worker_id, started=started, cause=cause)
            if count:
                logger.warning("%s jobs of a dead worker process%s were taken back: %s", count, child.where, cause)
        except Exception as error:  # whatever it is, the other children live on
            logger.error("the jobs of a dead worker process%s wait for their lease to end: %s", child.where, error)
        finally:
            connections.close_all()

    child.rescue = threading.Thread(target=rescue, name="reliable-jobs-rescue", daemon=True)
    child.rescue.start()
    return child.rescue


def stop_with_parent(stop: Callable[[], None]) -> None:
    """In a child: call `stop` when the supervisor is gone, however it went."""
    descriptor = os.environ.get(PARENT_PIPE)
    if descriptor is None:
        return

    def wait_for_end() -> None:
        os.read(int(descriptor), 1)
        stop()

    threading.Thread(target=wait_for_end, name="reliable-jobs-parent", daemon=True).start()
