"""What is wrong with processes, hosts and the server."""

from __future__ import annotations

from typing import Any

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Alert

Kind = Alert.Kind

# Somebody alive would have taken its jobs by now.
SILENT_WORKERS = """
SELECT host, pid, heartbeat_at FROM django_reliable_jobs_worker
 WHERE expires_at < clock_timestamp() - make_interval(secs => 2 * %(lease)s) ORDER BY host, pid
"""

# What keeps rows from being vacuumed: a snapshot, or a number of its own; prepared transactions keep it for ever.
OLD_TRANSACTIONS = """
SELECT 'process ' || pid, concat_ws(', ', usename, nullif(application_name, ''), state), xact_start
  FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
   AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
   AND xact_start < clock_timestamp() - %(age)s::interval
 UNION ALL
SELECT 'prepared transaction ' || gid, owner, prepared FROM pg_prepared_xacts
 WHERE database = current_database() AND prepared < clock_timestamp() - %(age)s::interval
 ORDER BY 3 LIMIT 20
"""

CLOCKS = """
SELECT host, (array_agg(clock_offset ORDER BY abs(clock_offset) DESC))[1] FROM (
       SELECT host, clock_offset FROM django_reliable_jobs_worker WHERE expires_at > clock_timestamp()
        UNION ALL
       SELECT host, clock_offset FROM django_reliable_jobs_leader WHERE expires_at > clock_timestamp()) alive
 WHERE abs(clock_offset) > %(allowed)s::float8 GROUP BY host ORDER BY host
"""


def silent_workers(using: str) -> list[Finding]:
    """Return the hosts of workers whose lease ran out and whose jobs nobody takes back."""
    workers: dict[str, list[tuple[int, Any]]] = {}
    for host, pid, heartbeat_at in _rows(using, SILENT_WORKERS, lease=settings.LEASE_SECONDS):
        workers.setdefault(host, []).append((pid, heartbeat_at))
    return [
        Finding(
            kind=Kind.WORKER_LOST,
            subject=host,
            message="; ".join(f"worker {host}:{pid} is silent since {as_local(at)}" for pid, at in lost[:5])
            + ". No other worker runs that could take back its jobs.",
            count=len(lost),
        )
        for host, lost in workers.items()
    ]


def old_transactions(using: str) -> list[Finding]:
    """Return the transactions that are so old that dead rows pile up behind them, and claims walk past those."""
    if settings.ALERT_OLD_TRANSACTION is None:
        return []
    return [
        Finding(
            kind=Kind.OLD_TRANSACTION,
            subject=who,
            message=f"A transaction that began at {as_local(began_at)} is open and holds back vacuum: {who} ({what})."
            " Claims get slower until it ends.",
        )
        for who, what, began_at in _rows(using, OLD_TRANSACTIONS, age=settings.ALERT_OLD_TRANSACTION)
    ]


def clocks_that_are_off(using: str) -> list[Finding]:
    """Return the hosts whose clock is not that of the database."""
    allowed = settings.ALERT_CLOCK_SECONDS
    if allowed is None:
        return []
    return [
        Finding(
            kind=Kind.CLOCK_OFF,
            subject=host,
            message=f"The clock of {host} is {abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} the"
            " database's. Jobs and schedules go by the database's; what the host logs does not fit.",
        )
        for host, offset in _rows(using, CLOCKS, allowed=allowed)
    ]


def _rows(using: str, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
