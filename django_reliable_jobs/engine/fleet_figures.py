"""Figures of the whole fleet, for who draws them. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from django_reliable_jobs import clock
from django_reliable_jobs.engine import inspection, limits
from django_reliable_jobs.engine.inspection import QueueStatus
from django_reliable_jobs.engine.schedules import OFFICE
from django_reliable_jobs.engine.transaction import engine_cursor

LAST_MINUTE = """
SELECT queue_name, outcome, sum(count)::float8 FROM django_reliable_jobs_minutecount
 WHERE minute = date_trunc('minute', coalesce(%(moment)s::timestamptz, statement_timestamp()) - interval '1 minute')
 GROUP BY queue_name, outcome ORDER BY queue_name, outcome
"""

OPEN_ALERTS = """
SELECT kind, severity, count(*)::float8 FROM django_reliable_jobs_alert WHERE resolved_at IS NULL
 GROUP BY kind, severity ORDER BY kind, severity
"""

LEADER = f"SELECT term, expires_at > clock_timestamp() FROM django_reliable_jobs_leader WHERE name = '{OFFICE}'"

# The last slot of each schedule, by one descent of the primary key.
LATEST_SLOT = """
SELECT max(extract(epoch FROM last.decided_at - last.slot))::float8
  FROM django_reliable_jobs_schedule schedule CROSS JOIN LATERAL (
       SELECT slot, decided_at FROM django_reliable_jobs_slot slot
        WHERE slot.schedule_id = schedule.id ORDER BY slot.slot DESC LIMIT 1) last
"""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What is true of the fleet now."""

    queues: list[QueueStatus]
    running_per_limit: dict[tuple[str], float]
    attempts_last_minute: dict[tuple[str, str], float]  # by queue and outcome, of the last full minute
    open_alerts: dict[tuple[str, str], float]  # by kind and severity
    dead: int
    leader_term: int
    has_leader: bool
    slot_late_seconds: float


def read(using: str) -> Figures:
    """Read them all."""
    with engine_cursor(using) as cursor:
        cursor.execute(LAST_MINUTE, {"moment": clock.moment()})
        attempts = {(queue, outcome): count for queue, outcome, count in cursor.fetchall()}
        cursor.execute(OPEN_ALERTS)
        alerts = {(kind, severity): count for kind, severity, count in cursor.fetchall()}
        cursor.execute(LEADER)
        term, leads = cursor.fetchone() or (0, False)
        cursor.execute(LATEST_SLOT)
        late = cursor.fetchone()[0] or 0.0
    return Figures(
        queues=inspection.queues(using),
        running_per_limit={
            (each.name,): float(each.running) for each in limits.statuses(using) if each.running is not None
        },
        attempts_last_minute=attempts,
        open_alerts=alerts,
        dead=sum(inspection.dead_by_task(using).values()),
        leader_term=term,
        has_leader=leads,
        slot_late_seconds=late,
    )
