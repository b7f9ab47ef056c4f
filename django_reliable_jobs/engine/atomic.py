"""`@task(atomic=True)`: the task's writes and its success in one transaction, fenced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import InterfaceError, OperationalError, connections, transaction

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.checkpoints import MINE
from django_reliable_jobs.engine.endings_of_jobs import Ended, ended
from django_reliable_jobs.engine.transaction import LIMIT_IDLE, engine_cursor
from django_reliable_jobs.exceptions import LeaseLost
from django_reliable_jobs.models import Job

logger = logging.getLogger("django_reliable_jobs")

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"

# The last statement before COMMIT, and the fence.
SUCCEED = f"""
WITH {MINE}
UPDATE django_reliable_jobs_job job
   SET status = 'SUCCEEDED', result = %(result)s::jsonb, losses = 0, reason = NULL,
       started_at = {_NOW} - make_interval(secs => %(started_ago)s), finished_at = {_NOW}
  FROM mine WHERE job.id = mine.id
RETURNING {LIMIT_IDLE}
"""

# The lock waits for a session that was lost in the middle of its COMMIT; what it did is known after that.
READ_BACK = """
SELECT status FROM django_reliable_jobs_job WHERE id = %(job_id)s AND token = %(token)s FOR NO KEY UPDATE
"""


@contextmanager
def succeeding(
    using: str, job_id: int, token: int, *, batch_id: int | None = None
) -> Iterator[Callable[[str | None, float], None]]:
    """Run a block in one transaction with the success of its job; the block calls what it is given, last, to record it.

    Raises LeaseLost, and writes nothing, if the attempt was replaced. After an error at COMMIT or later, the outcome is
    read back from the job's row before the error is raised or forgotten: a lost connection may have committed, and a
    hook that follows the COMMIT undoes nothing.
    """
    recorded = False

    def record(result: str | None, started_ago: float) -> None:
        nonlocal recorded
        parameters = {"job_id": job_id, "token": token, "result": result, "started_ago": started_ago}
        with engine_cursor(using) as cursor:
            cursor.execute(SUCCEED, {**parameters, "moment": clock.moment(), "lease": settings.LEASE_SECONDS})
            if cursor.fetchone() is None:
                raise LeaseLost(f"job {job_id} was given to another attempt; nothing of this one is written")
        if batch_id is not None:
            ended(using, [Ended(job_id, Job.Status.SUCCEEDED, "", batch_id=batch_id)])
        recorded = True

    try:
        with transaction.atomic(using=using):
            yield record
    except Exception as error:
        if not recorded or connections[using].in_atomic_block or not was_recorded(using, job_id, token):
            raise
        if not isinstance(error, OperationalError | InterfaceError):
            logger.exception("job %s has succeeded; a hook that was to follow its COMMIT failed", job_id)


def was_recorded(using: str, job_id: int, token: int) -> bool:
    """Return whether the success of this attempt was committed by a session that was lost since."""
    connections[using].close()
    with engine_cursor(using) as cursor:
        cursor.execute(READ_BACK, {"job_id": job_id, "token": token})
        row = cursor.fetchone()
    return row is not None and row[0] == Job.Status.SUCCEEDED
