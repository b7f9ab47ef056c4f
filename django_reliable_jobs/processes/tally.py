"""What a worker tells of the jobs whose ending was written: counts, and signals."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django.db import Error as DatabaseError
from django.db.models import F

from django_reliable_jobs import registry, signals
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import counters
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.counters import Counted
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.models import Attempt, Job, MinuteCount
from django_reliable_jobs.progress import Progress

if TYPE_CHECKING:
    from django_reliable_jobs.processes.pool import HeldJob

logger = logging.getLogger("django_reliable_jobs")

FLUSH_SECONDS = 10.0

SUCCEEDED = Job.Status.SUCCEEDED.value
_SUCCEEDED = MinuteCount.Outcome.SUCCEEDED.value
_BY_STATUS = {
    SUCCEEDED: _SUCCEEDED,
    Job.Status.DEAD.value: MinuteCount.Outcome.DEAD.value,
    Job.Status.CANCELLED.value: MinuteCount.Outcome.CANCELLED.value,
}


class Tally:
    """Counts in memory; its worker's thread adds, the heartbeat writes."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._counts: dict[tuple[str, str, str], list[float]] = {}
        self._changing = threading.Lock()
        self.observers: list[Callable[[Sequence[HeldJob]], None]] = []  # told the same, for metrics
        self.events = Counter[str]()  # "lost_leases", "rescued"
        self._flushed_at = time.monotonic()

    def add(self, ended: Sequence[HeldJob]) -> None:
        """Count jobs whose ending was written by this process just now, and tell who listens."""
        with self._changing:
            counts = self._counts
            for held in ended:
                outcome = held.outcome
                name = _SUCCEEDED if outcome.status == SUCCEEDED else name_of(outcome)  # type: ignore[union-attr, arg-type]
                key = (held.job.queue_name, held.job.task, name)
                entry = counts.get(key)
                if entry is None:
                    entry = counts[key] = [0, 0.0]
                entry[0] += 1
                if held.started is not None:
                    entry[1] += held.ended - held.started  # type: ignore[operator]
        for observe in self.observers:
            observe(ended)
        if has_listeners():
            for held in ended:
                if held.outcome is not None:
                    announce(self._using, held.job, held.outcome, held.progress)

    def flush_if_due(self) -> None:
        """Write what was counted, if that was not done a moment ago."""
        if self._counts and time.monotonic() - self._flushed_at >= min(FLUSH_SECONDS, settings.LEASE_SECONDS / 3):
            self.flush()

    def flush(self) -> None:
        """Write what was counted. What can't be written now is kept: a count is not worth a lease."""
        self._flushed_at = time.monotonic()
        with self._changing:
            counts, self._counts = self._counts, {}
        try:
            written = {Counted(*key): (int(number), seconds) for key, (number, seconds) in counts.items() if key[2]}
            if written:
                counters.add(self._using, written)
        except DatabaseError as error:
            logger.warning("counts could not be written, they are kept: %s", str(error).strip())
            with self._changing:
                for key, (number, seconds) in counts.items():
                    entry = self._counts.setdefault(key, [0, 0.0])
                    entry[0] += number
                    entry[1] += seconds
            raise


def name_of(outcome: Outcome) -> str:
    """Return what an ending is counted as; empty: it is no attempt."""
    if (name := _BY_STATUS.get(outcome.status)) is not None:
        return name
    if outcome.attempt is None:
        # Never started and given back, or waiting; what is put off unstarted names a task that is not known here.
        return MinuteCount.Outcome.UNKNOWN.value if outcome.status == Job.Status.SCHEDULED else ""
    return outcome.attempt


def has_listeners() -> bool:
    """Return whether anybody listens to how attempts end."""
    return bool(
        signals.succeeded.receivers
        or signals.attempt_failed.receivers
        or signals.dead.receivers
        or signals.cancelled.receivers
    )


def announce_cancelled(using: str, job_ids: Sequence[int]) -> None:
    """Send the signal of jobs that were cancelled while they waited, after somebody has committed it."""
    if signals.cancelled.receivers and job_ids:
        columns = ("task", "attempt", "queue_name", "reason")
        rows = Job.objects.using(using).filter(pk__in=job_ids).order_by("pk").values(*columns, job_id=F("pk"))
        for facts in rows:
            signals.send(signals.cancelled, registry.find(facts["task"]), using=using, progress=None, **facts)


def announce(using: str, job: ClaimedJob, outcome: Outcome, progress: Progress) -> None:
    """Send the signals of an ending that was written."""
    facts: dict[str, Any] = {
        "job_id": job.id,
        "task": job.task,
        "attempt": job.attempt,
        "queue_name": job.queue_name,
        "using": using,
        "reason": outcome.reason,
        "progress": progress.said,
    }
    sent = []
    if outcome.attempt == Attempt.Outcome.FAILED.value:
        sent.append(signals.attempt_failed)
    match outcome.status:
        case Job.Status.SUCCEEDED:
            sent.append(signals.succeeded)
        case Job.Status.DEAD:
            sent.append(signals.dead)
        case Job.Status.CANCELLED:
            sent.append(signals.cancelled)
    for signal in sent:
        if signal.receivers:
            signals.send(signal, registry.find(job.task), **facts)
