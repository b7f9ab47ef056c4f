"""The queues that something names: jobs, live or ended, schedules, and what an operator decided. Not workers."""

from __future__ import annotations

from typing import Any

from django_reliable_jobs.engine.claim import HEADS, LIMITED_QUEUES
from django_reliable_jobs.engine.kinds import KINDS
from django_reliable_jobs.engine.queues import ALL
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Job

MOST_LOOKED_AT = 10_000  # live jobs of an index that is not in the order of queues
MOST_KINDS = 2000

# By descents of indexes where queues stand in order; of the scheduled and running jobs, some, in the order of the index
# that has them, whatever share of the table it seems to have.
NAMES = f"""
WITH RECURSIVE {HEADS}, {LIMITED_QUEUES}, {KINDS}
SELECT queue_name FROM head UNION SELECT queue_name FROM limited
 UNION (SELECT queue_name FROM kind LIMIT %(most_kinds)s)
 UNION (SELECT queue_name FROM django_reliable_jobs_job
         WHERE status IN ('SCHEDULED', 'WAITING') ORDER BY run_after, id LIMIT %(most)s)
 UNION (SELECT queue_name FROM django_reliable_jobs_job WHERE status = 'RUNNING' ORDER BY worker_id LIMIT %(most)s)
 UNION SELECT name FROM django_reliable_jobs_queue WHERE name <> '{ALL}'
 UNION SELECT queue_name FROM django_reliable_jobs_schedule WHERE queue_name <> ''
"""


def in_use(using: str) -> set[str]:
    """Return the queues that jobs, schedules or an operator name; of very many jobs, some are looked at."""
    parameters: dict[str, Any] = {
        "statuses": [each.value for each in Job.ENDED],
        "most": MOST_LOOKED_AT,
        "most_kinds": MOST_KINDS,
    }
    with engine_cursor(using) as cursor:
        cursor.execute(NAMES, parameters)
        return {name for (name,) in cursor.fetchall()}
