"""Limited jobs in the hands of a test, found and claimed as a worker would."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from django_reliable_jobs.engine import limited, lines
from django_reliable_jobs.engine.claim import Arm, ClaimedJob
from django_reliable_jobs.engine.lines import Finding, Line


def find(*queues: str) -> Finding:
    return lines.find_lines("default", dict.fromkeys(queues or ("default",), ""))


def take(
    worker_id: int, found: Sequence[Line], limit: int = 8, *, free: int | None = None, alone: bool = True
) -> list[ClaimedJob]:
    """Claim from lines, in their order."""
    free = limit if free is None else free
    claimed = limited.claim_lines("default", worker_id, found, limit=limit, free=free, alone=alone)
    return [job for _, job in claimed]


def find_and_take(worker_id: int, limit: int = 8, *, alone: bool = True) -> list[ClaimedJob]:
    """Claim limited jobs of the default queue; those of the lines with the higher priority first."""
    found = sorted(find().lines, key=lambda line: -line.priority)
    return take(worker_id, found, limit, alone=alone)


def lock(found: Sequence[Line]) -> list[Line]:
    """The first statement of a claim."""
    with connection.cursor() as cursor:
        return limited._lock(cursor, found, most=100)


def claim_locked(worker_id: int, locked: Sequence[Line], limit: int = 8) -> list[ClaimedJob]:
    """The second statement of a claim."""
    with connection.cursor() as cursor:
        claimed = limited._claim_lines(cursor, worker_id, locked, limit=limit, free=limit, alone=True, paced=True)
    return [job for _, job in claimed]


def take_capped(
    worker_id: int, queue_name: str = "default", *, priorities: Sequence[int] = (0,), limit: int = 8
) -> list[int]:
    """Claim ordinary jobs of a queue that has a limit; return their ids."""
    arms = [Arm(queue_name, priority, limit) for priority in priorities]
    return [job.id for job in limited.claim_capped("default", worker_id, arms, limit=limit, free=limit, alone=True)]
