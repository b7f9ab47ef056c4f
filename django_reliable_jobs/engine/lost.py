"""What becomes of a job whose worker was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.lifecycle import Ending, Outcome
from django_reliable_jobs.models import Attempt, Job

logger = logging.getLogger("django_reliable_jobs")

NOT_STARTED = Outcome(status=Job.Status.READY.value, uses_attempt=False)


def outcome(message: str, max_attempts: int, losses: int, uniform: Callable[[], float], *, is_undoing: bool) -> Outcome:
    """Return how a job goes on that was lost for the `losses`-th time in a row; `message` says with whom."""
    told = partial(
        Outcome,
        attempt=Attempt.Outcome.LOST.value,
        losses=losses,
        error_class="WorkerLost",
        error_message=message,
    )
    if is_undoing and losses >= settings.MAX_LOSSES:
        return told(status=Job.Status.DEAD.value, compensation=Job.Compensation.FAILED.value, uses_attempt=False)
    if max_attempts == 1 and not is_undoing:
        reason = f"{message}; max_attempts=1 allows no second start"
        return told(status=Job.Status.DEAD.value, reason=reason)
    if losses >= settings.MAX_LOSSES:
        reason = f"{message}; {losses} workers in a row were lost running this job"
        return told(status=Job.Status.DEAD.value, reason=reason, uses_attempt=False)
    if losses == 1:
        return told(status=Job.Status.READY.value, uses_attempt=False)
    # The first rescue is quick; a job that goes on losing its workers comes back later and later, and spread.
    delay = min(5 * 2 ** (losses - 2), 60) * (1 + uniform())
    return told(status=Job.Status.SCHEDULED.value, delay=delay, uses_attempt=False)


def log_dead(endings: Iterable[Ending], tasks: Mapping[int, str]) -> None:
    """Log those that end here as dead letters: no worker will, as theirs is gone."""
    for ending in endings:
        if ending.outcome.status == Job.Status.DEAD:
            reason = ending.outcome.reason or ending.outcome.error_message
            logger.error("job %s (%s) is dead: %s", ending.job_id, tasks[ending.job_id], reason)
