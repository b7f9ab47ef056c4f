"""Finding jobs among millions, a page at a time: by id, by unique key, since a moment. Writes nothing."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from django_reliable_jobs import arguments, registry
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Job

# Ids are given out in the order of enqueueing, but for what was committed later than what began later.
SLACK = timedelta(minutes=1)

# By halves: some twenty descents of the primary key find a moment among a million rows, without an index on moments.
FIRST_SINCE = """
WITH RECURSIVE search(low, high) AS (
    SELECT min(id), max(id) + 1 FROM django_reliable_jobs_job
     UNION ALL
    SELECT CASE WHEN probe.is_older THEN probe.middle + 1 ELSE search.low END,
           CASE WHEN probe.is_older THEN search.high ELSE probe.middle END
      FROM search CROSS JOIN LATERAL (
           SELECT (search.low + search.high) / 2 AS middle, coalesce((
                  SELECT created_at < %(moment)s FROM django_reliable_jobs_job
                   WHERE id >= (search.low + search.high) / 2 ORDER BY id LIMIT 1), false) AS is_older) probe
     WHERE search.low < search.high
)
SELECT low FROM search WHERE low >= high
"""

ENDS = "SELECT min(id), max(id) FROM django_reliable_jobs_job"
NEWEST_BELOW = "SELECT max(id) FROM django_reliable_jobs_job WHERE id < %(below)s"

BY_KEY = """
SELECT id FROM django_reliable_jobs_job
 WHERE unique_hash = ANY(%(hashes)s::bytea[]) AND unique_hash IS NOT NULL
   AND status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING')
 ORDER BY id LIMIT 100
"""


def first_since(using: str, moment: datetime) -> int:
    """Return an id below which no job was enqueued at `moment` or later."""
    with engine_cursor(using) as cursor:
        cursor.execute(FIRST_SINCE, {"moment": moment - SLACK})
        row = cursor.fetchone()
    return int(row[0]) if row and row[0] is not None else 0


def ends(using: str) -> tuple[int, int]:
    """Return the lowest and the highest id there is; 0 and 0 if there is none."""
    with engine_cursor(using) as cursor:
        cursor.execute(ENDS)
        lowest, highest = cursor.fetchone()
    return lowest or 0, highest or 0


def newest_below(using: str, below: int) -> int:
    """Return the highest id below this one; 0 if there is none."""
    with engine_cursor(using) as cursor:
        cursor.execute(NEWEST_BELOW, {"below": below})
        return int(cursor.fetchone()[0] or 0)


def live_by_key(using: str, text: str) -> list[int]:
    """Return the live jobs with this unique key: a text, or arguments as in `order_id=42` or `order_id=42,kind="full"`.

    The key is not kept, only its hash: each declared task is asked what hash it would have.
    """
    hashes = [arguments.hash_of_key(task.name, text) for task in registry.all_tasks()]
    if given := _arguments(text):
        tasks = (task for task in registry.all_tasks() if isinstance(task.unique, tuple))
        hashes += [
            arguments.hash_of_key(task.name, {name: given[name] for name in task.unique})  # type: ignore[union-attr]
            for task in tasks
            if set(task.unique) == set(given)  # type: ignore[arg-type]
        ]
    with engine_cursor(using) as cursor:
        cursor.execute(BY_KEY, {"hashes": hashes})
        return [job_id for (job_id,) in cursor.fetchall()]


def estimate(jobs: QuerySet[Job]) -> int:
    """Return about how many jobs these are, as the planner sees it: nothing is counted."""
    sql, params = jobs.order_by().values("pk").query.sql_with_params()
    with engine_cursor(jobs.db) as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        plan: Any = cursor.fetchone()[0]
    return int((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]["Plan Rows"])


def count_up_to(jobs: QuerySet[Job], most: int) -> int | None:
    """Return how many jobs these are; None: more than that."""
    found = jobs.order_by().values("pk")[: most + 1].count()
    return found if found <= most else None


def page(jobs: QuerySet[Job], *, below: int | None, floor: int | None, size: int) -> list[Job]:
    """Return the newest of these jobs with ids below `below` and not below `floor`."""
    bounds: dict[str, int] = {}
    if below is not None:
        bounds["pk__lt"] = below
    if floor is not None:
        bounds["pk__gte"] = floor
    return list(jobs.filter(**bounds).order_by("-pk")[:size])


def oldest(jobs: QuerySet[Job], most: int) -> list[int]:
    """Return the ids of these jobs, the oldest first, at most so many."""
    return list(jobs.order_by("pk").values_list("pk", flat=True)[:most])


def _arguments(text: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            return {}
        try:
            given[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):  # no JSON, or nested deeper than the reader goes
            given[name.strip()] = value
    return given
