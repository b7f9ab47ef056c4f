"""The thread that turns NOTIFY into a wake-up. Without it a worker polls: later, never wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import psycopg
from django.db.utils import OperationalError

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import wakeup
from django_reliable_jobs.engine.transaction import is_pooled
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.loop import Loop

logger = logging.getLogger("django_reliable_jobs")

TURN_SECONDS = 1.0  # how long one turn listens, and so how soon a stop is seen
NEVER = 3600.0


class Sleeper(Protocol):
    """Who is woken: a worker by the queues that it serves, a scheduler by any change of a schedule."""

    using: str

    def wake(self) -> None: ...
    def hears(self, payload: str) -> bool: ...


class Listener(Loop):
    """Listens on a connection of its own, unless LISTEN is off or a pooler would swallow the notifications."""

    def __init__(
        self,
        sleeper: Sleeper,
        *,
        on_death: Callable[[str, BaseException], None],
        channel: str = wakeup.CHANNEL,
        purpose: str = "new jobs start",
    ) -> None:
        super().__init__("listener", self._listen, on_death=on_death)
        self._sleeper = sleeper
        self._channel = channel
        self._purpose = purpose

    def _listen(self) -> float:
        if settings.LISTEN == "off":
            return NEVER
        dsn = None if settings.LISTEN == "auto" else settings.LISTEN
        pooled = dsn is None and is_pooled(self._sleeper.using)
        connections.close_all()  # what listens is another one
        if pooled:
            logger.warning(
                "the database is reached through a transaction pooler, so NOTIFY can't be heard: %s within %s s."
                " Set LISTEN to a DSN that reaches PostgreSQL directly to have it at once, or to 'off'.",
                self._purpose,
                settings.POLL_SECONDS,
            )
            return NEVER
        try:
            with wakeup.listening(self._sleeper.using, dsn, self._channel) as connection:
                self._hear(connection)
        except psycopg.Error as error:
            raise OperationalError(str(error)) from error
        return 0.0

    def _hear(self, connection: psycopg.Connection) -> None:
        self._sleeper.wake()  # what was notified while nobody listened
        while not self.is_stopping:
            for notification in connection.notifies(timeout=TURN_SECONDS, stop_after=1):
                if self._sleeper.hears(notification.payload):
                    self._sleeper.wake()
            self.mark_turn()
