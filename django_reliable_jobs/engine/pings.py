"""Pings: a monitor outside, such as Healthchecks, hears when a job of a schedule starts, succeeds and dies.

The leading scheduler looks at the jobs of the schedules that have a `ping_url`, and makes a job of each ping, which is
tried again as any job is. So a monitor hears nothing, and speaks up, when the schedulers are dead, when the workers
are, and when the job is. What was pinged is kept for as long as it is looked at, in the same transaction as the jobs.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit, urlunsplit

from django_reliable_jobs import arguments, clock
from django_reliable_jobs.engine import enqueue
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.registry import Placement, Task

LOOKED_BACK = timedelta(minutes=5)
MOST_JOBS = 100  # of one schedule and status, in one look
MAX_BODY = 10_000
LOCK_SECONDS = 2.0  # for another sender of the same schedule

PINGED_SCHEDULES = "SELECT id FROM django_reliable_jobs_schedule WHERE ping_url <> '' ORDER BY id"

# One sender at a time for each schedule; the schedule's own row is left to the tick.
LOCK = """
INSERT INTO django_reliable_jobs_pinged AS pinged (schedule_id, told) VALUES (%(id)s, '[]')
    ON CONFLICT (schedule_id) DO UPDATE SET told = pinged.told RETURNING told::text
"""

# Each arm is a range of the index of a schedule's jobs.
JOBS = """
SELECT job.id, job.claims, job.status, job.reason, schedule.ping_url, schedule.queue_name
  FROM django_reliable_jobs_schedule schedule
 CROSS JOIN unnest(ARRAY['RUNNING', 'SUCCEEDED', 'DEAD']) AS state(status)
 CROSS JOIN LATERAL (
       SELECT id, claims, status, reason, finished_at FROM django_reliable_jobs_job job
        WHERE job.schedule_id = schedule.id AND job.status = state.status
          AND (job.finished_at IS NULL
               OR job.finished_at > coalesce(%(moment)s::timestamptz, clock_timestamp()) - %(back)s::interval)
        ORDER BY job.finished_at DESC LIMIT %(most)s) job
 WHERE schedule.id = %(id)s AND schedule.ping_url <> '' ORDER BY job.id
"""

SAVE = "UPDATE django_reliable_jobs_pinged SET told = %(told)s::jsonb WHERE schedule_id = %(id)s"

EVENTS = {"RUNNING": "start", "SUCCEEDED": "", "DEAD": "fail"}


class _Seen(NamedTuple):
    job_id: int
    claims: int
    status: str
    reason: str | None
    url: str
    queue_name: str

    @property
    def key(self) -> str:
        return f"{self.job_id}:{self.claims}:{self.status}"


class Tasks(NamedTuple):
    """The tasks that tell of a start, and of an end."""

    start: Task[..., Any]
    end: Task[..., Any]


def enqueue_due(using: str, tasks: Tasks) -> int:
    """Make a job for each start and end that was not told yet; return how many."""
    with engine_cursor(using) as cursor:
        cursor.execute(PINGED_SCHEDULES)
        ids = [schedule_id for (schedule_id,) in cursor.fetchall()]
    return sum(_enqueue_of(using, tasks, schedule_id) for schedule_id in ids)


def address(url: str, event: str, job_id: int, claims: int) -> str:
    """Return where a ping goes: the event behind the path, and the run's id, as Healthchecks has them."""
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}/{event}" if event else parts.path
    rid = urlencode({"rid": uuid.uuid5(uuid.NAMESPACE_URL, f"job:{job_id}:{claims}")})
    return urlunsplit(parts._replace(path=path, query=f"{parts.query}&{rid}" if parts.query else rid, fragment=""))


def _enqueue_of(using: str, tasks: Tasks, schedule_id: int) -> int:
    if not _look(using, schedule_id):
        return 0
    with short_transaction(using, lock_timeout=LOCK_SECONDS, statement_timeout=10) as cursor:
        cursor.execute(LOCK, {"id": schedule_id})
        told = set(arguments.load(cursor.fetchone()[0]))
        seen = _look(using, schedule_id)  # a new snapshot: what the last sender told is known
        new = [each for each in seen if each.key not in told]
        for each in new:
            _enqueue(using, tasks, each)
        if new:
            cursor.execute(SAVE, {"id": schedule_id, "told": arguments.dump(sorted(each.key for each in seen))})
    return len(new)


def _look(using: str, schedule_id: int) -> list[_Seen]:
    parameters: Mapping[str, Any] = {
        "moment": clock.moment(),
        "id": schedule_id,
        "back": LOOKED_BACK,
        "most": MOST_JOBS,
    }
    with engine_cursor(using) as cursor:
        cursor.execute(JOBS, parameters)
        return [_Seen._make(row) for row in cursor.fetchall()]


def _enqueue(using: str, tasks: Tasks, each: _Seen) -> None:
    event = EVENTS[each.status]
    task = tasks.start if event == "start" else tasks.end
    placement: Placement[..., Any] = Placement(task=task, database=using, queue_name=each.queue_name or None)
    body = (each.reason or "")[:MAX_BODY] if event == "fail" else ""
    enqueue.enqueue(placement, (address(each.url, event, each.job_id, each.claims),), {"body": body} if body else {})
