"""How a worker begins: it gets on the list of workers, and says whom it serves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.conf import settings as django_settings
from django.db import Error as DatabaseError

from django_reliable_jobs import registry
from django_reliable_jobs.engine import counters, heartbeat, limits, queue_names
from django_reliable_jobs.spelling import right_word

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

logger = logging.getLogger("django_reliable_jobs")


def register(worker: Worker) -> None:
    """Write what the code says of limits, and the worker's row; its lease begins. Safe to repeat."""
    limits.declare(worker.using)
    counters.declare(worker.using)
    heartbeat.register(
        worker.using,
        worker.identity,
        queues=worker.queues.names,
        excluded=sorted(worker.queues.excluded),
        threads=worker.threads,
    )


def introduce(worker: Worker) -> None:
    """Log whom a worker serves, and a warning of each queue among its words that nothing names."""
    logger.info("worker %s serves %s with %s threads", worker.identity, worker.queues, worker.threads)
    declared = {task.queue_name for task in registry.all_tasks()} | _queues_of_framework()
    named = [*(worker.queues.names or ()), *sorted(worker.queues.excluded)]
    unknown = [name for name in named if name not in declared]
    if not unknown:
        return
    try:
        known = sorted(declared | queue_names.in_use(worker.using))
    except DatabaseError:  # a warning is not worth a second try; the loop meets what is wrong
        return
    for name in unknown:
        if name not in known:
            meant = right_word(name, known)
            hint = f"did you mean {meant!r}?" if meant else f"the known ones are {', '.join(known)}."
            # No mistake: `.using(queue_name=…)` makes queues at any time.
            logger.warning("worker %s: no task, job or schedule names the queue %r: %s", worker.identity, name, hint)


def _queues_of_framework() -> set[str]:
    """Return the queues that the project's settings of Django's Tasks framework list."""
    backends = getattr(django_settings, "TASKS", {}).values()
    return {str(name) for each in backends for name in each.get("QUEUES") or ()}
