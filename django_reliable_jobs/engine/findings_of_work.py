"""What is wrong with queues, tasks and jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django_reliable_jobs import clock, registry
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import inspection
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.engine.claim import HEADS, IS_LIMITED, IS_OPEN, LIMITED_QUEUES, NOW
from django_reliable_jobs.engine.inspection import IS_ALIVE, SERVES, as_local
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Alert, Pulse
from django_reliable_jobs.spans import write_span

Kind = Alert.Kind

UNSERVED = timedelta(minutes=1)  # a worker of a queue may be away for so long: it is restarted
DEAD_WITHIN = timedelta(hours=1)
MOST_LOOKED_AT = 10_000  # rows of a queue in which nothing tells the oldest
MOST_DEAD = 100_000

# The oldest job of each queue that is not paused. A loose index scan finds it among the ready; of those with limits,
# and of those that are due and that nobody has promoted, some are looked at.
OLDEST = f"""
WITH RECURSIVE {HEADS}, {LIMITED_QUEUES}, waiting AS (
    SELECT queue_name, run_after FROM head
     UNION ALL
    SELECT limited.queue_name, looked_at.run_after FROM limited CROSS JOIN LATERAL (
           SELECT min(run_after) AS run_after FROM (
                  SELECT job.run_after FROM django_reliable_jobs_job job
                   WHERE {IS_LIMITED} AND job.queue_name = limited.queue_name LIMIT {MOST_LOOKED_AT}) job) looked_at
     UNION ALL
    SELECT queue_name, run_after FROM (
           SELECT job.queue_name, job.run_after FROM django_reliable_jobs_job job
            WHERE job.status = 'SCHEDULED' AND job.run_after <= {NOW}
            ORDER BY job.run_after, job.id LIMIT {MOST_LOOKED_AT}) due
), oldest AS (
    SELECT queue_name, min(run_after) AS due FROM waiting GROUP BY queue_name
)
SELECT queue_name, due, {NOW} - due,
       EXISTS (SELECT 1 FROM django_reliable_jobs_worker worker
                WHERE {IS_ALIVE} AND {SERVES.format("oldest.queue_name")})
  FROM oldest WHERE {IS_OPEN.format("oldest")} ORDER BY queue_name
"""

DEAD = f"""
SELECT task, count(*), max(finished_at), (array_agg(reason ORDER BY finished_at DESC))[1]
  FROM (SELECT task, finished_at, left(reason, 300) AS reason FROM django_reliable_jobs_job
         WHERE status = 'DEAD' AND finished_at IS NOT NULL AND finished_at > {NOW} - %(within)s::interval
         ORDER BY finished_at DESC LIMIT {MOST_DEAD}) dead
 GROUP BY task HAVING count(*) >= %(letters)s ORDER BY task
"""

RUNNING = f"""
SELECT task, count(*), min(started_at), (array_agg(id ORDER BY started_at))[1]
  FROM django_reliable_jobs_job job CROSS JOIN LATERAL (
       SELECT coalesce((SELECT allowed FROM unnest(%(tasks)s::text[], %(spans)s::interval[]) AS own(task, allowed)
                         WHERE own.task = job.task), %(span)s::interval) AS allowed) its
 WHERE status = 'RUNNING' AND started_at < {NOW} - its.allowed
 GROUP BY task ORDER BY task
"""


def ageing_queues(using: str) -> list[Finding]:
    """Return the queues in which a job waits too long, and those that no worker serves."""
    findings = []
    for queue, due, age, is_served in _rows(using, OLDEST):
        allowed = settings.ALERT_QUEUE_AGES.get(queue, settings.ALERT_QUEUE_AGE)
        if allowed is None:
            continue
        if not is_served and age > min(UNSERVED, allowed):
            message = (
                f"No worker serves the queue {queue}, in which a job waits since {as_local(due)}."
                f" Start one: `manage.py runworker --queue {queue}`."
            )
            findings.append(Finding(kind=Kind.QUEUE_UNSERVED, subject=queue, message=message))
        elif is_served and age > allowed:
            message = (
                f"In the queue {queue} a job waits since {as_local(due)}, longer than {write_span(allowed)}."
                f" Add workers, or see who holds it up: `manage.py jobs list --queue {queue} --status READY`."
            )
            findings.append(Finding(kind=Kind.QUEUE_AGEING, subject=queue, message=message))
    return findings


def dead_letters(using: str) -> list[Finding]:
    """Return the tasks whose jobs died within the last hour: one finding for a task, however many jobs."""
    if settings.ALERT_DEAD_LETTERS is None:
        return []
    return [
        Finding(
            kind=Kind.DEAD_LETTERS,
            subject=task,
            message=f"{_jobs(count)} of {task} died within an hour, the last at {as_local(last)}:"
            f" {reason or 'no reason was recorded'}. See them: `manage.py jobs list --status DEAD --task {task}`.",
            count=count,
        )
        for task, count, last, reason in _rows(using, DEAD, within=DEAD_WITHIN, letters=settings.ALERT_DEAD_LETTERS)
    ]


def long_runs(using: str) -> list[Finding]:
    """Return the tasks of which an attempt runs too long; one with a timeout may run for that long."""
    allowed = settings.ALERT_RUN_TIME
    if allowed is None:
        return []
    own = {task.name: task.timeout for task in registry.all_tasks() if task.timeout and task.timeout > allowed}
    rows = _rows(using, RUNNING, span=allowed, tasks=list(own), spans=list(own.values()))
    return [
        Finding(
            kind=Kind.RUNS_LONG,
            subject=task,
            message=f"{_jobs(count)} of {task} run{'s' if count == 1 else ''} longer than"
            f" {write_span(own.get(task, allowed))}: {job_id} since {as_local(started_at)}.",
            count=count,
        )
        for task, count, started_at, job_id in rows
    ]


def silent_tasks(using: str) -> list[Finding]:
    """Return the tasks whose dead man's switch went off, of those that this process knows."""
    spans = {task.name: task.alert_after for task in registry.all_tasks() if task.alert_after is not None}
    if not spans:
        return []
    now = inspection.now(using)
    findings = []
    for pulse in Pulse.objects.using(using).filter(task__in=list(spans)).order_by("task"):
        since = max(filter(None, (pulse.watched_since, pulse.succeeded_at)))
        if now - since > spans[pulse.task]:
            findings.append(_silent_task(pulse, spans[pulse.task], since))
    return findings


def _silent_task(pulse: Pulse, allowed: timedelta, since: datetime) -> Finding:
    what = "its last success was at" if pulse.succeeded_at else "never since"
    message = f"The task {pulse.task} has not succeeded for more than {write_span(allowed)}: {what} {as_local(since)}."
    return Finding(kind=Kind.TASK_SILENT, subject=pulse.task, message=message)


def unknown_tasks(using: str) -> list[Finding]:
    """Return the tasks that jobs name and no worker of their queue knows."""
    found: dict[str, list[Any]] = {}
    for each in inspection.unknown_tasks(using):
        found.setdefault(each.task, []).append(each)
    return [
        Finding(
            kind=Kind.TASK_UNKNOWN,
            subject=task,
            message=f"Jobs in {', '.join(each.queue_name for each in places)} name the task {task}, which no worker"
            " there knows: is the release that declares it deployed?",
            count=sum(each.jobs for each in places),
        )
        for task, places in found.items()
    ]


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count}{' or more' if count >= MOST_DEAD else ''} jobs"


def _rows(using: str, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, {"moment": clock.moment(), **parameters})
        return list(cursor.fetchall())
