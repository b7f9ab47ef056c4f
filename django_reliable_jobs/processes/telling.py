"""The scheduler's thread that looks for what is wrong and tells of it.

It is a thread of its own with a connection of its own, so that a webhook that hangs delays no slot. An alert that
nobody can work can't be a job: there may be no worker. Each message is sent in a further thread, which is left behind
if it does not end in time; until it ends, its channel is not used again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from django_reliable_jobs import signals
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import alerts, findings, inspection, notices
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.models import Alert
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.loop import Loop

if TYPE_CHECKING:
    from django_reliable_jobs.processes.scheduler import Scheduler

logger = logging.getLogger("django_reliable_jobs")

TURN_SECONDS = 10.0
PRUNE_TURNS = 60
SEND_SECONDS = 30.0  # for one message through one channel
HANGING_SECONDS = 600.0  # how often it is said that one hangs still


class Channel(Protocol):
    """What `notify` hands in."""

    name: str

    def send(self, notices: Sequence[Any]) -> None: ...


class Telling(Loop):
    """Opens, repeats and resolves alerts while its scheduler leads, and tells of them."""

    def __init__(
        self, scheduler: Scheduler, channels: Sequence[Channel], *, on_death: Callable[[str, BaseException], None]
    ) -> None:
        super().__init__("alerts", self._turn_once, on_death=on_death)
        self._scheduler = scheduler
        self._channels = channels
        self._sending: dict[str, threading.Thread] = {}
        self._complained_at: dict[str, float] = {}
        self._turns = 0
        self._seen_term: int | None = None

    def _turn_once(self) -> float:
        if not self._scheduler.is_leader:
            return TURN_SECONDS
        using, names = self._scheduler.using, [channel.name for channel in self._channels]
        if self._turns % PRUNE_TURNS == 0:
            alerts.prune(using)
            notices.forget_channels(using, names)
        self._turns += 1
        found, kinds = findings.look(using)
        flips = alerts.flip(using, [*self._vacancy(), *found], kinds, names)
        for alert in flips.opened:
            logger.warning("alert %s %s: %s", alert.kind, alert.subject, alert.message)
            signals.send(signals.alert_opened, None, alert=alert, using=using)
        for alert in flips.resolved:
            logger.info("alert %s %s is resolved", alert.kind, alert.subject)
            signals.send(signals.alert_resolved, None, alert=alert, using=using)
        for channel in self._channels:
            self.mark_turn()
            self._tell(using, channel)
        return TURN_SECONDS

    def _vacancy(self) -> list[Finding]:
        """Return that nobody led for long before this term, once: nobody was there to tell of it then."""
        term, vacancy = self._scheduler.term_and_vacancy
        if term is None or term == self._seen_term:
            return []
        self._seen_term = term
        if vacancy is None or settings.ALERT_NO_SCHEDULER is None:
            return []
        return _no_scheduler_led(*vacancy, settings.ALERT_NO_SCHEDULER)

    def _tell(self, using: str, channel: Channel) -> None:
        if (hanging := self._sending.get(channel.name)) is not None and hanging.is_alive():
            self._complain(channel.name)
            return
        taken = notices.take(using, channel.name)
        if not taken:
            return
        error = self._send(channel, taken)
        if error is None:
            notices.said(using, taken)
            return
        logger.error("alerts can't be told through the channel %s: %s", channel.name, error)
        for notice in notices.unsaid(using, taken, error):
            logger.error("the channel %s never told of the alert %s", channel.name, notice.alert)

    def _complain(self, name: str) -> None:
        """Say now and then that a channel hangs: what it is to tell of waits, and nobody hears of that through it."""
        if time.monotonic() - self._complained_at.get(name, -HANGING_SECONDS) >= HANGING_SECONDS:
            self._complained_at[name] = time.monotonic()
            logger.error("the channel %s hangs: what it is to tell of waits until its last message ends", name)

    def _send(self, channel: Channel, taken: Sequence[Any]) -> str | None:
        """Return why a message was not sent; None: it was."""
        failures: list[str] = []

        def send() -> None:
            try:
                channel.send(taken)
            except BaseException as error:  # whatever a channel does, it ends here
                failures.append(f"{type(error).__name__}: {error}")
            finally:
                connections.close_all()

        thread = threading.Thread(target=send, name=f"reliable-jobs-tell-{channel.name}", daemon=True)
        self._sending[channel.name] = thread
        thread.start()
        thread.join(SEND_SECONDS)
        if thread.is_alive():
            return f"it did not end within {SEND_SECONDS:.0f} s"
        return failures[0] if failures else None


def _no_scheduler_led(since: datetime, until: datetime, patience: timedelta) -> list[Finding]:
    if until - since <= patience:
        return []
    message = f"No scheduler led from {inspection.as_local(since)} to {inspection.as_local(until)}."
    return [Finding(kind=Alert.Kind.NO_SCHEDULER, subject="scheduler", message=message)]
