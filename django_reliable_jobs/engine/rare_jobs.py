"""The few jobs among millions that match: by indexes, in one snapshot, or the answer that they are not few.

Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_reliable_jobs.engine.claim import IS_LIMITED, IS_READY
from django_reliable_jobs.engine.kinds import IS_OF_KIND, KINDS
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Job

FEW = 5000  # jobs
MOST_KINDS = 2000
MOST_LIVE = 10_000  # jobs of each index that are looked at

_MATCHES = """(%(task)s::text IS NULL OR {0}.task = %(task)s::text)
          AND (%(queue_name)s::text IS NULL OR {0}.queue_name = %(queue_name)s::text)
          AND (%(part)s::text IS NULL OR starts_with({0}.task, %(part)s::text)
               OR right({0}.task, length(%(part)s::text) + 1) = '.' || %(part)s::text)"""

# Here and below in the order of the index that has them, whatever share of the table it seems to have.
_INDEXES = {
    "ready": ("'READY'", IS_READY, "queue_name, priority, run_after, id"),
    "limited": ("'READY'", IS_LIMITED, "queue_name"),
    "running": ("'RUNNING'", "job.status = 'RUNNING'", "worker_id"),
    "due": ("'SCHEDULED', 'WAITING'", "job.status IN ('SCHEDULED', 'WAITING')", "run_after, id"),
}
_LIVE = " UNION ALL ".join(
    f"(SELECT id, status, task, queue_name, '{name}' AS index FROM django_reliable_jobs_job job"
    f" WHERE {condition} AND %(of)s::text[] && ARRAY[{statuses}] ORDER BY {order} LIMIT %(most_live)s + 1)"
    for name, (statuses, condition, order) in _INDEXES.items()
)
_LEAVES_OUT = " OR ".join(
    f"EXISTS (SELECT 1 FROM live WHERE index = '{name}' OFFSET %(most_live)s)" for name in _INDEXES
)
_KNOWN = f"""
WITH RECURSIVE {KINDS}, known AS MATERIALIZED (
    SELECT * FROM kind LIMIT %(most_kinds)s + 1
), asked AS MATERIALIZED (
    SELECT * FROM known kind WHERE {_MATCHES.format("kind")}
)"""

# How many there are is seen in the index alone: a plan that sorts rows reads them all. They are read if they are few.
BY_KIND = f"""
{_KNOWN}, looked_at AS MATERIALIZED (
    SELECT FROM asked kind CROSS JOIN LATERAL (
           SELECT job.finished_at FROM django_reliable_jobs_job job
            WHERE {IS_OF_KIND} ORDER BY job.finished_at LIMIT %(few)s + 1) job
     LIMIT %(few)s + 1
), ended AS MATERIALIZED (
    SELECT job.id FROM asked kind CROSS JOIN LATERAL (
           SELECT job.id FROM django_reliable_jobs_job job
            WHERE {IS_OF_KIND} ORDER BY job.finished_at LIMIT %(few)s + 1) job
     WHERE NOT EXISTS (SELECT 1 FROM looked_at OFFSET %(few)s) LIMIT %(few)s
), live AS MATERIALIZED (
    SELECT * FROM ({_LIVE}) live WHERE NOT EXISTS (SELECT 1 FROM looked_at OFFSET %(few)s)
)
SELECT ARRAY(SELECT id FROM ended),
       ARRAY(SELECT live.id FROM live WHERE live.status = ANY(%(of)s::text[]) AND {_MATCHES.format("live")}),
       EXISTS (SELECT 1 FROM looked_at OFFSET %(few)s) OR EXISTS (SELECT 1 FROM known OFFSET %(most_kinds)s),
       {_LEAVES_OUT}
"""

LATEST_END = f"""
{_KNOWN}
SELECT max(latest.finished_at) FROM asked kind CROSS JOIN LATERAL (
       SELECT job.finished_at FROM django_reliable_jobs_job job
        WHERE {IS_OF_KIND} ORDER BY job.finished_at DESC LIMIT 1) latest
"""

BY_SCHEDULE = """
WITH looked_at AS MATERIALIZED (
    SELECT FROM unnest(%(of)s::text[]) AS given(status) CROSS JOIN LATERAL (
           SELECT job.finished_at FROM django_reliable_jobs_job job
            WHERE job.schedule_id = %(schedule_id)s AND job.status = given.status
            ORDER BY job.finished_at LIMIT %(few)s + 1) job
     LIMIT %(few)s + 1
)
SELECT ARRAY(SELECT job.id FROM unnest(%(of)s::text[]) AS given(status) CROSS JOIN LATERAL (
                    SELECT job.id FROM django_reliable_jobs_job job
                     WHERE job.schedule_id = %(schedule_id)s AND job.status = given.status
                     ORDER BY job.finished_at LIMIT %(few)s + 1) job
              WHERE NOT EXISTS (SELECT 1 FROM looked_at OFFSET %(few)s) LIMIT %(few)s),
       ARRAY[]::bigint[], EXISTS (SELECT 1 FROM looked_at OFFSET %(few)s), false
"""
LATEST_END_OF_SCHEDULE = """
SELECT max(job.finished_at) FROM unnest(%(statuses)s::text[]) AS given(status) CROSS JOIN LATERAL (
       SELECT job.finished_at FROM django_reliable_jobs_job job
        WHERE job.schedule_id = %(schedule_id)s AND job.status = given.status AND job.finished_at IS NOT NULL
        ORDER BY job.finished_at DESC LIMIT 1) job
"""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What all the jobs have; None: anything. `part` is the beginning or the last parts of the name of their task."""

    status: str | None = None
    task: str | None = None
    part: str | None = None
    queue_name: str | None = None
    schedule_id: int | None = None  # with a status or without; the others are not looked at


class Found(NamedTuple):
    """The ids of the jobs that match, the newest first; `leaves_out`: but for live ones that were not looked at."""

    ids: list[int]
    leaves_out: bool = False


def find(using: str, wanted: Wanted) -> Found | None:
    """Return the jobs that match, if they are few; None: they may be many."""
    return _find(using, wanted, Job.Status.values)


def find_live(using: str, wanted: Wanted) -> Found | None:
    """Return the live jobs that match, if they are few; None: they may be many."""
    return _find(using, wanted, [each.value for each in Job.LIVE])


def latest_end(using: str, wanted: Wanted) -> datetime | None:
    """Return when the last one that matches ended; None: none of them has."""
    statement = LATEST_END if wanted.schedule_id is None else LATEST_END_OF_SCHEDULE
    with engine_cursor(using) as cursor:
        cursor.execute(statement, _parameters(wanted, [each.value for each in Job.ENDED]))
        latest: datetime | None = cursor.fetchone()[0]
        return latest


def _find(using: str, wanted: Wanted, statuses: Sequence[str]) -> Found | None:
    statement = BY_KIND if wanted.schedule_id is None else BY_SCHEDULE
    with engine_cursor(using) as cursor:
        cursor.execute(statement, _parameters(wanted, statuses))
        ended, live, are_many, leaves_out = cursor.fetchone()
    if are_many or len(ended) + len(live) > FEW:
        return None
    return Found(sorted({*ended, *live}, reverse=True), leaves_out)


def _parameters(wanted: Wanted, statuses: Sequence[str]) -> dict[str, Any]:
    of = [each for each in statuses if wanted.status in (None, each)]
    return {
        **asdict(wanted),
        "of": of,
        "statuses": [each for each in of if each in Job.ENDED],
        "few": FEW,
        "most_kinds": MOST_KINDS,
        "most_live": MOST_LIVE,
    }
