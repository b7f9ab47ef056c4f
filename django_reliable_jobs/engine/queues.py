"""What an operator decides about a queue: paused, until when, and served again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django_reliable_jobs import clock
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.engine.wakeup import CHANNEL, notify_idle

ALL = "*"  # no queue can have this name: its row stands for all of them

_NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"

# A condition on a row `queue`. A pause whose end has come is over, whether or not somebody has cleared the row since.
IS_PAUSED = f"queue.paused_at IS NOT NULL AND (queue.resume_at IS NULL OR queue.resume_at > {_NOW})"

# ORDER BY, here and below: two operators who name the same queues in any order lock them in the same order.
PAUSE = f"""
INSERT INTO django_reliable_jobs_queue AS queue (name, paused_at, resume_at)
SELECT name, {_NOW}, %(resume_at)s::timestamptz FROM unnest(%(names)s::text[]) AS given(name) ORDER BY name
    ON CONFLICT (name) DO UPDATE
   SET paused_at = CASE WHEN {IS_PAUSED} THEN queue.paused_at ELSE excluded.paused_at END,
       resume_at = excluded.resume_at
RETURNING name, paused_at = {_NOW}
"""

RESUME = f"""
WITH paused AS MATERIALIZED (
    SELECT name FROM django_reliable_jobs_queue queue WHERE name = ANY(%(names)s::text[]) AND {IS_PAUSED}
     ORDER BY name FOR NO KEY UPDATE
)
UPDATE django_reliable_jobs_queue queue SET paused_at = NULL, resume_at = NULL
  FROM paused WHERE queue.name = paused.name
RETURNING queue.name, {notify_idle("queue.name")}
"""

# Those that serve any queue hear of `*` itself.
WAKE_ALL = f"""
SELECT pg_notify('{CHANNEL}', name) FROM (
    SELECT DISTINCT unnest(queues) AS name FROM django_reliable_jobs_worker WHERE is_idle AND lost_at IS NULL) served
"""

LIMIT = """
INSERT INTO django_reliable_jobs_queue (name, concurrency) VALUES (%(name)s, %(concurrency)s)
    ON CONFLICT (name) DO UPDATE SET concurrency = excluded.concurrency
"""


@dataclass(frozen=True)
class Paused:
    """What `pause` did, as names of queues."""

    paused: list[str]
    paused_before: list[str]  # since then, but now until the new `resume_at`


def pause(using: str, names: Iterable[str], resume_at: datetime | None = None) -> Paused:
    """Let no more jobs of these queues be claimed, until `resume_at` or until resumed. What was claimed before runs on.

    A queue needs no job and no row to be paused; ALL pauses every queue, also those to come. The last word on
    `resume_at` counts; None is for ever.
    """
    parameters = {"names": sorted(set(names)), "resume_at": resume_at, "moment": clock.moment()}
    with engine_cursor(using) as cursor:
        cursor.execute(PAUSE, parameters)
        rows = sorted(cursor.fetchall())
    return Paused([name for name, is_new in rows if is_new], [name for name, is_new in rows if not is_new])


def resume(using: str, names: Iterable[str]) -> list[str]:
    """Let the jobs of these queues be claimed again, and wake idle workers; return the queues that were paused.

    ALL ends the pause of all: a queue that was paused by name stays paused.
    """
    with engine_cursor(using) as cursor:
        cursor.execute(RESUME, {"names": sorted(set(names)), "moment": clock.moment()})
        resumed = sorted(name for name, _ in cursor.fetchall())
        if ALL in resumed:
            cursor.execute(WAKE_ALL)
    return resumed


def limit(using: str, name: str, concurrency: int | None) -> None:
    """Let no more jobs of this queue run at once in the whole fleet; None: any number. What runs ends as usual."""
    with engine_cursor(using) as cursor:
        cursor.execute(LIMIT, {"name": name, "concurrency": concurrency})
