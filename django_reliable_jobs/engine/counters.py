"""Counts by minute, and the pulses of tasks that are watched. Throughput never has to count jobs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import DatabaseError

from django_reliable_jobs import clock, registry
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.models import MinuteCount

logger = logging.getLogger("django_reliable_jobs")

_NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"

# ORDER BY, here and below: two workers that add to the same rows lock them in the same order.
ADD = f"""
INSERT INTO django_reliable_jobs_minutecount AS counted (minute, queue_name, task, outcome, count, seconds)
SELECT date_trunc('minute', {_NOW}), given.queue_name, given.task, given.outcome, given.count, given.seconds
  FROM unnest(%(queues)s::text[], %(tasks)s::text[], %(outcomes)s::text[], %(counts)s::bigint[], %(seconds)s::float8[])
       AS given(queue_name, task, outcome, count, seconds)
 ORDER BY given.queue_name, given.task, given.outcome
    ON CONFLICT (minute, queue_name, task, outcome) DO UPDATE
   SET count = counted.count + excluded.count, seconds = counted.seconds + excluded.seconds
"""

BEAT = f"""
WITH alive AS MATERIALIZED (
    SELECT task FROM django_reliable_jobs_pulse WHERE task = ANY(%(alive)s::text[]) ORDER BY task FOR NO KEY UPDATE
)
UPDATE django_reliable_jobs_pulse pulse SET succeeded_at = greatest(pulse.succeeded_at, {_NOW})
  FROM alive WHERE pulse.task = alive.task
"""

# A task that is declared without `alert_after` is not watched any more: when it is again, its watch starts anew.
DECLARE = f"""
WITH unwatched AS (
    DELETE FROM django_reliable_jobs_pulse WHERE task = ANY(%(unwatched)s::text[])
)
INSERT INTO django_reliable_jobs_pulse (task, watched_since)
SELECT task, {_NOW} FROM unnest(%(watched)s::text[]) AS given(task) ORDER BY task ON CONFLICT (task) DO NOTHING
"""

PER_MINUTE = f"""
SELECT minute, queue_name, outcome, sum(count)::bigint, sum(seconds) FROM django_reliable_jobs_minutecount
 WHERE minute > {_NOW} - %(span)s::interval GROUP BY minute, queue_name, outcome ORDER BY minute, queue_name, outcome
"""

PRUNE = f"""
DELETE FROM django_reliable_jobs_minutecount WHERE (minute, queue_name, task, outcome) IN (
    SELECT minute, queue_name, task, outcome FROM django_reliable_jobs_minutecount
     WHERE minute < {_NOW} - %(age)s::interval ORDER BY minute LIMIT 10000)
"""


class Counted(NamedTuple):
    """What is counted together: `task` is the name in the row, `outcome` one of MinuteCount.Outcome."""

    queue_name: str
    task: str
    outcome: str


class Minute(NamedTuple):
    """What ended in one way within one minute in a queue, and for how many seconds it ran in all."""

    minute: datetime
    queue_name: str
    outcome: str
    attempts: int
    seconds: float


def add(using: str, counts: Mapping[Counted, tuple[int, float]]) -> None:
    """Add numbers and seconds to the counts of this minute, and mark the watched tasks that succeeded."""
    parameters: dict[str, Any] = {
        "moment": clock.moment(),
        "queues": [each.queue_name for each in counts],
        "tasks": [each.task for each in counts],
        "outcomes": [each.outcome for each in counts],
        "counts": [number for number, _ in counts.values()],
        "seconds": [seconds for _, seconds in counts.values()],
        "alive": _watched(each.task for each in counts if each.outcome == MinuteCount.Outcome.SUCCEEDED),
    }
    with short_transaction(using, lock_timeout=1, statement_timeout=5) as cursor:
        cursor.execute(ADD, parameters)
        if parameters["alive"]:
            cursor.execute(BEAT, parameters)


def add_lost(using: str, places: Sequence[Sequence[str]]) -> None:
    """Count attempts (queue and task of each) that were lost with their worker, in a savepoint of the rescue.

    What can't be counted is logged: jobs are taken back all the same.
    """
    counts = Counter(Counted(queue, task, MinuteCount.Outcome.LOST) for queue, task in places)
    if counts:
        try:
            add(using, {counted: (number, 0.0) for counted, number in counts.items()})
        except DatabaseError:
            logger.exception("%s lost attempts could not be counted", len(places))


def declare(using: str) -> None:
    """Begin to watch the tasks that declare `alert_after`; those that are watched already go on."""
    tasks = registry.all_tasks()
    parameters = {
        "moment": clock.moment(),
        "watched": [task.name for task in tasks if task.alert_after is not None],
        "unwatched": [task.name for task in tasks if task.alert_after is None],
    }
    with engine_cursor(using) as cursor:
        cursor.execute(DECLARE, parameters)


def per_minute(using: str, span: Any) -> list[Minute]:
    """Return the counts of the last `span` (a timedelta), by minute, queue and outcome; minutes without any are left
    out, the last one is not complete.
    """
    with engine_cursor(using) as cursor:
        cursor.execute(PER_MINUTE, {"moment": clock.moment(), "span": span})
        return [Minute(*row) for row in cursor.fetchall()]


def prune(using: str) -> None:
    """Delete counts older than COUNTER_RETENTION."""
    parameters: dict[str, Any] = {"moment": clock.moment(), "age": settings.COUNTER_RETENTION}
    if settings.COUNTER_RETENTION is not None:
        with engine_cursor(using) as cursor:
            cursor.execute(PRUNE, parameters)


def _watched(names: Iterable[str]) -> list[str]:
    tasks = (registry.find(name) for name in names)  # an alias counts for its task
    return sorted({task.name for task in tasks if task is not None and task.alert_after is not None})
