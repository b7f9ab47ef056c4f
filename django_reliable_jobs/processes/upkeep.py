"""The scheduler's other threads: what a leader does beside ticking, and who watches that it turns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from django_reliable_jobs import tasks
from django_reliable_jobs.engine import maintenance, pings, schedule_upkeep
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.processes.loop import Loop

if TYPE_CHECKING:
    from django_reliable_jobs.processes.scheduler import Scheduler

logger = logging.getLogger("django_reliable_jobs")

PING_TASKS = pings.Tasks(tasks.ping_start, tasks.ping)

TURN_SECONDS = 5.0
PRUNE_SECONDS = 60.0
PRUNE_SLOTS_SECONDS = 600.0
STATEMENT_SECONDS = 30.0

WATCH_SECONDS = 5.0
STUCK_TURNS = 36  # three minutes: more than the longest tick, whose statements have timeouts


class Upkeep(Loop):
    """Prunes, and looks for rows that were changed outside; only while its scheduler leads."""

    def __init__(self, scheduler: Scheduler, *, on_death: Callable[[str, BaseException], None]) -> None:
        super().__init__("upkeep", self._turn_once, on_death=on_death)
        self._scheduler = scheduler
        self._replanned_until: int | None = None
        self._pruned_at = time.monotonic()
        self._slots_pruned_at = time.monotonic()

    def _turn_once(self) -> float:
        if not self._scheduler.is_leader:
            return TURN_SECONDS
        using, now = self._scheduler.using, time.monotonic()
        pings.enqueue_due(using, PING_TASKS)
        self._replanned_until = schedule_upkeep.replan(using, self._replanned_until or 0)
        if now - self._pruned_at >= PRUNE_SECONDS:
            self._pruned_at = now
            self._sweep(schedule_upkeep.prune_jobs)
            with short_transaction(using, statement_timeout=STATEMENT_SECONDS):
                maintenance.resume_queues(using)
                maintenance.prune(using, batches=1)
        if now - self._slots_pruned_at >= PRUNE_SLOTS_SECONDS:
            self._slots_pruned_at = now
            self._sweep(schedule_upkeep.prune_slots)
        return TURN_SECONDS

    def _sweep(self, prune: Callable[[str, int], int | None]) -> None:
        last: int | None = 0
        while last is not None and not self.is_stopping:
            last = prune(self._scheduler.using, last)
            self.mark_turn()


class Watchdog(Loop):
    """Notices a scheduler that hangs. It counts its own turns: a process that was stopped as a whole does not hang."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        on_stuck: Callable[[], None] | None,
        on_death: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("watchdog", self._watch, on_death=on_death)
        self._scheduler = scheduler
        self._on_stuck = on_stuck
        self._seen = -1
        self._unchanged = 0

    def _watch(self) -> float:
        turns = self._scheduler.turns
        self._unchanged = self._unchanged + 1 if turns == self._seen else 0
        self._seen = turns
        if self._unchanged >= STUCK_TURNS:
            logger.critical(
                "scheduler %s has not turned for %.0f s", self._scheduler.identity, STUCK_TURNS * WATCH_SECONDS
            )
            if self._on_stuck is not None:
                self._on_stuck()
        return WATCH_SECONDS
