"""A thread that turns again and again, survives a lost database, and says when it last turned."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db import Error as DatabaseError
from django.db import InterfaceError, InternalError, OperationalError

from django_reliable_jobs.conf import settings
from django_reliable_jobs.processes import connections

logger = logging.getLogger("django_reliable_jobs")

LONGEST_PAUSE = 5.0  # seconds between two tries to reach a lost database


class Loop:
    """Calls `turn` in a thread; it returns the seconds to wait before the next, which `wake` cuts short.

    A database error closes the thread's connections and is tried again, with a growing pause. Any other error ends the
    loop and is handed to `on_death`: a process that has lost a part of itself must not look alive.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], float],
        *,
        on_death: Callable[[str, BaseException], None],
    ) -> None:
        self.name = name
        self.turned_at = time.monotonic()
        self._failed_at = 0.0
        self._turn = turn
        self._on_death = on_death
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reliable-jobs-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Turn now."""
        self._wake.set()

    @property
    def thread(self) -> int | None:
        """The number of its thread, once it runs."""
        return self._thread.ident

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def mark_turn(self) -> None:
        """Show that a long turn is alive."""
        self.turned_at = time.monotonic()

    def failed_since(self, moment: float) -> bool:
        """Return whether the database did not answer at some time since `moment` (monotonic)."""
        return self._failed_at >= moment

    def failed(self) -> None:
        """Called after each turn in which the database did not answer."""

    def stop(self, timeout: float = 5) -> None:
        """End after the current turn, waiting for it at most `timeout` seconds."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        failures = 0
        try:
            while not self._stop.is_set():
                self._wake.clear()
                try:
                    connections.make_usable()
                    pause = self._turn()
                    failures = 0
                except (DatabaseError, MemoryError) as error:
                    failures += 1
                    if isinstance(
                        error, OperationalError | InterfaceError | InternalError
                    ):  # the last: it is read-only
                        self._failed_at = time.monotonic()
                    pause = pause_after(failures)
                    logger.warning(
                        "%s: the database did not answer (%s); again in %.1f s",
                        self.name,
                        error,
                        pause,
                    )
                    connections.close_all()
                    self.failed()
                self.turned_at = time.monotonic()
                self._wake.wait(pause)
        except BaseException as error:
            self._on_death(self.name, error)
        finally:
            connections.close_all()


def pause_after(failures: int) -> float:
    """Return the seconds to wait before the next try after so many failures in a row.

    Not long beside the lease: when the server is back, the living must have renewed before somebody may rescue.
    """
    return min(0.1 * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE, settings.LEASE_SECONDS / 6)
