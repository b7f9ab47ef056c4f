"""What is wrong with schedules, and with who decides them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import schedule_upkeep, schedules
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.schedules import OFFICE
from django_reliable_jobs.engine.slots import NOW
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Alert
from django_reliable_jobs.spans import write_span

Kind = Alert.Kind

MOST = 200  # of a kind; further ones are not looked at one by one

_IS_AWAKE = f"(schedule.paused_at IS NULL OR schedule.resume_at <= {NOW})"
# One descent of the index of a schedule's jobs; the stored moment stands for jobs that were pruned.
_LAST_SUCCESS = """CROSS JOIN LATERAL (
       SELECT max(job.finished_at) AS at FROM django_reliable_jobs_job job
        WHERE job.schedule_id = schedule.id AND job.status = 'SUCCEEDED') success"""

# The dead man's switch. What is stored tells most schedules apart without a look at their jobs. A schedule that has no
# further slot, and succeeded after its last one, owes nothing any more.
SILENT = f"""
SELECT schedule.name, schedule.alert_after, watched.succeeded_at, watched.since
  FROM django_reliable_jobs_schedule schedule
 {_LAST_SUCCESS}
 CROSS JOIN LATERAL (
       SELECT greatest(schedule.succeeded_at, success.at) AS succeeded_at,
              greatest(schedule.watched_since, schedule.starts_at,
                       CASE WHEN schedule.paused_at IS NOT NULL THEN schedule.resume_at END) AS since) watched
 WHERE schedule.alert_after IS NOT NULL AND {_IS_AWAKE}
   AND greatest(schedule.succeeded_at, schedule.watched_since) < {NOW} - schedule.alert_after
   AND greatest(watched.succeeded_at, watched.since) < {NOW} - schedule.alert_after
   AND NOT (schedule.next_run_at IS NULL AND schedule.error = ''
            AND coalesce(watched.succeeded_at >= schedule.decided_until, false))
 ORDER BY schedule.name LIMIT {MOST}
"""

FAILING = f"""
SELECT schedule.name, failed.jobs, failed.first, failed.reason FROM django_reliable_jobs_schedule schedule
 {_LAST_SUCCESS}
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs, min(finished_at) AS first, (array_agg(reason ORDER BY finished_at DESC))[1] AS reason
         FROM (SELECT job.finished_at, job.reason FROM django_reliable_jobs_job job
                WHERE job.schedule_id = schedule.id AND job.status = 'DEAD'
                  AND job.finished_at > coalesce(greatest(schedule.succeeded_at, success.at), '-infinity')
                ORDER BY job.finished_at DESC LIMIT 1000) dead) failed
 WHERE {_IS_AWAKE} AND failed.jobs >= %(failures)s
 ORDER BY schedule.name LIMIT {MOST}
"""

# `vacant_since`: since when nobody leads; NULL if somebody does. Leadership knows only the database's clock.
SCHEDULER = f"""
SELECT CASE WHEN leader.name IS NULL THEN oldest.created_at
            WHEN leader.expires_at <= clock_timestamp() THEN leader.expires_at END AS vacant_since,
       CASE WHEN leader.name IS NULL THEN oldest.created_at ELSE leader.expires_at END
           < clock_timestamp() - %(patience)s::interval AS is_missed,
       leader.host, leader.pid, overdue.name, overdue.next_run_at, overdue.schedules
  FROM (SELECT min(created_at) AS created_at FROM django_reliable_jobs_schedule schedule
         WHERE next_run_at IS NOT NULL) oldest
  LEFT JOIN django_reliable_jobs_leader leader ON leader.name = '{OFFICE}'
  LEFT JOIN LATERAL (
       SELECT name, next_run_at, count(*) OVER () AS schedules FROM django_reliable_jobs_schedule schedule
        WHERE next_run_at <= {NOW} - %(grace)s::interval AND error = ''
        ORDER BY next_run_at, id LIMIT 1) overdue ON true
 WHERE oldest.created_at IS NOT NULL
"""


def silent(using: str) -> list[Finding]:
    """Return the schedules whose dead man's switch went off."""
    return [
        Finding(
            kind=Kind.SCHEDULE_SILENT,
            subject=name,
            message=f"The schedule {name} has not succeeded for more than {write_span(alert_after)}: "
            + (f"its last success was at {as_local(succeeded_at)}." if succeeded_at and succeeded_at >= since else "")
            + ("" if succeeded_at and succeeded_at >= since else f"never since {as_local(since)}."),
        )
        for name, alert_after, succeeded_at, since in _rows(using, SILENT)
    ]


def failing(using: str) -> list[Finding]:
    """Return the schedules whose last jobs died, one after another."""
    if settings.ALERT_FAILURES is None:
        return []
    return [
        Finding(
            kind=Kind.SCHEDULE_FAILING,
            subject=name,
            message=f"The last {jobs} jobs of the schedule {name} died, the first of them at {as_local(first)}."
            f" The newest: {reason or 'no reason was recorded'}",
            count=jobs,
        )
        for name, jobs, first, reason in _rows(using, FAILING, failures=settings.ALERT_FAILURES)
    ]


def broken(using: str) -> list[Finding]:
    """Return the schedules that can't be decided."""
    return [
        Finding(
            kind=Kind.SCHEDULE_BROKEN,
            subject=schedule.name,
            message=f"The schedule {schedule.name} is broken since {as_local(schedule.error_at)}: {schedule.error}",
        )
        for schedule in schedules.find_broken(using)[:MOST]
        if schedule.error_at is not None
    ]


def moved(using: str) -> list[Finding]:
    """Return the schedules whose next runs are not those that were planned."""
    findings = []
    for each in schedule_upkeep.find_moved(using)[:MOST]:
        planned = ", ".join(map(as_local, each.planned)) or "never"
        now = ", ".join(map(as_local, each.now)) or "never"
        message = (
            f"The schedule {each.name} was to run at {planned}; now it will run at {now}. Its row was changed in SQL,"
            " or croniter or the time zone database was upgraded."
        )
        findings.append(Finding(kind=Kind.SCHEDULE_MOVED, subject=each.name, message=message))
    return findings


def missing_scheduler(using: str) -> list[Finding]:
    """Return what is wrong if no scheduler leads, or one that leads does not decide what is due."""
    patience = settings.ALERT_NO_SCHEDULER
    if patience is None:
        return []
    grace = timedelta(seconds=settings.MISFIRE_GRACE_SECONDS)
    for vacant_since, is_missed, host, pid, name, due_at, count in _rows(
        using, SCHEDULER, patience=patience, grace=grace
    ):
        if vacant_since is None and name is not None:
            return [_idle_scheduler(f"{host}:{pid}", name, due_at, count)]
        if vacant_since is not None and (is_missed or name is not None):
            return [_no_scheduler(vacant_since, host, name, due_at)]
    return []


def _no_scheduler(vacant_since: datetime, host: str | None, overdue: str | None, due_at: datetime) -> Finding:
    since = f" since {as_local(vacant_since)}" if host is not None else ""
    due = f", and {overdue} was due at {as_local(due_at)}" if overdue is not None else ""
    message = (
        f"No scheduler is running{since}{due}. Start one: `manage.py runscheduler`, or `runworker --with-scheduler`."
    )
    return Finding(kind=Kind.NO_SCHEDULER, subject=OFFICE, message=message)


def _idle_scheduler(who: str, overdue: str, due_at: datetime, count: int) -> Finding:
    message = (
        f"The scheduler {who} leads, but {count} schedule{'s are' if count > 1 else ' is'} overdue:"
        f" {overdue} since {as_local(due_at)}. Look at its log, and restart it."
    )
    return Finding(kind=Kind.SCHEDULE_OVERDUE, subject=OFFICE, message=message, count=count)


def _rows(using: str, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, {"moment": clock.moment(), **parameters})
        return list(cursor.fetchall())
