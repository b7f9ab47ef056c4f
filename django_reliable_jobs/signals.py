"""What a project may connect to. Nothing is built for a signal that nobody hears.

`sender` is the Task, or None where there is none or this process does not know it, so that
`succeeded.connect(receiver, sender=charge)` hears of one task alone. A receiver that raises is logged and changes
nothing.

- `enqueued(job, using)`: in the caller's transaction, which may roll back still; for jobs that were inserted. Not for
  jobs of schedules.
- `started(context)`: in the job's thread, before its task is called.
- `succeeded`, `attempt_failed`, `dead`, `cancelled` (job_id, task, attempt, queue_name, using, reason, progress): in
  the worker's thread, once it is committed. Keep receivers short: the worker claims nothing meanwhile, and a worker
  that is killed between the commit and the signal never sends it. For what must happen, use `on_dead` or enqueue a job.
- `slot_missed(schedule, first, last, count, reason, using)`: in the scheduler's thread.
- `alert_opened(alert, using)`, `alert_resolved(alert, using)`: in the thread of the scheduler that tells of alerts.
"""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

logger = logging.getLogger("django_reliable_jobs")

enqueued = Signal()
started = Signal()
succeeded = Signal()
attempt_failed = Signal()
dead = Signal()
cancelled = Signal()
slot_missed = Signal()
alert_opened = Signal()
alert_resolved = Signal()


def send(signal: Signal, sender: Any, **facts: Any) -> None:
    """Send a signal; what its receivers raise is logged."""
    for receiver, answer in signal.send_robust(sender, **facts):
        if isinstance(answer, Exception):
            logger.error("a receiver of a signal failed: %r", receiver, exc_info=answer)
