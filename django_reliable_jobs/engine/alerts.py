"""Alerts: opened once, told of, repeated, resolved, by however many schedulers.

What decides is a row: there is at most one open alert of a kind for a subject, and every change of it is a conditional
update of which one caller sees the row come back. What is to be said through a channel is a row too (`Notice`), made in
the same transaction as the change: a sender that dies, or a channel that fails, has only put it off.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, transaction

from django_reliable_jobs.arguments import without_bad_characters
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.models import Alert

logger = logging.getLogger("django_reliable_jobs")

Kind = Alert.Kind

WARNINGS = {
    Kind.SCHEDULE_MOVED,
    Kind.SLOT_MISSED,
    Kind.TASK_UNKNOWN,
    Kind.DEAD_LETTERS,
    Kind.RUNS_LONG,
    Kind.WORKER_LOST,
    Kind.OLD_TRANSACTION,
    Kind.CLOCK_OFF,
}
# What happened, as opposed to what is: nobody finds it again in the database. Such an alert ends by itself when nothing
# of the kind happened for so long; None: when a person has acknowledged it.
QUIET: dict[str, timedelta | None] = {
    Kind.WORKER_LOST: timedelta(hours=1),
    Kind.SLOT_MISSED: timedelta(hours=1),
    Kind.UNDO_FAILED: None,
}

MAX_MESSAGE = 2000
TOLD_ANEW_AFTER = timedelta(minutes=15)  # one that comes and goes is told of no more often

# `adds`: the counts add up (events), otherwise the last one counts (states). Untouched if nothing is new, so that a
# look every few seconds writes nothing.
_OPEN = """
INSERT INTO django_reliable_jobs_alert AS alert (kind, subject, severity, message, count)
SELECT given.kind, given.subject, given.severity, given.message, given.count
  FROM unnest(%(kinds)s::text[], %(subjects)s::text[], %(severities)s::text[], %(messages)s::text[], %(counts)s::int[])
       AS given(kind, subject, severity, message, count)
 ORDER BY given.kind, given.subject
    ON CONFLICT (kind, subject) WHERE resolved_at IS NULL DO UPDATE
   SET message = excluded.message, severity = excluded.severity, seen_at = clock_timestamp(),
       count = CASE WHEN %(adds)s THEN least(alert.count::bigint + excluded.count, 2147483647) ELSE excluded.count END,
       acknowledged_at = CASE WHEN %(adds)s AND excluded.kind = ANY(%(until_seen)s::text[]) THEN NULL
                              ELSE alert.acknowledged_at END
 WHERE %(adds)s OR (alert.message, alert.severity, alert.count)
                   IS DISTINCT FROM (excluded.message, excluded.severity, excluded.count)
"""

RESOLVE = """
WITH over AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_alert alert
     WHERE resolved_at IS NULL
       AND CASE WHEN kind = ANY(%(until_seen)s::text[]) THEN acknowledged_at IS NOT NULL
                WHEN NOT kind = ANY(%(events)s::text[]) THEN kind = ANY(%(looked_for)s::text[])
                ELSE seen_at < clock_timestamp() - (
                     SELECT quiet FROM unnest(%(events)s::text[], %(quiets)s::interval[]) AS event(kind, quiet)
                      WHERE event.kind = alert.kind) END
       AND NOT EXISTS (SELECT 1 FROM unnest(%(kinds)s::text[], %(subjects)s::text[]) AS found(kind, subject)
                        WHERE found.kind = alert.kind AND found.subject = alert.subject)
     ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), resolved AS (
    UPDATE django_reliable_jobs_alert alert SET resolved_at = clock_timestamp()
      FROM over WHERE alert.id = over.id RETURNING alert.id, alert.told_at
), unsaid AS (
    DELETE FROM django_reliable_jobs_notice WHERE alert_id IN (SELECT id FROM over) AND event = 'repeated'
), said AS (
    INSERT INTO django_reliable_jobs_notice (alert_id, channel, event)
    SELECT resolved.id, channel.name, 'resolved'
      FROM resolved CROSS JOIN unnest(%(channels)s::text[]) AS channel(name) WHERE resolved.told_at IS NOT NULL
)
SELECT id FROM resolved WHERE told_at IS NOT NULL ORDER BY id
"""

# A flip: two schedulers that find the same alert untold wait for its lock in turn, and the second finds it told. What
# was told of a moment ago, was resolved and is there again waits for its turn; if it is over before, nothing is said.
TELL = """
WITH untold AS MATERIALIZED (
    SELECT id, told_at FROM django_reliable_jobs_alert alert
     WHERE resolved_at IS NULL
       AND (told_at IS NULL AND NOT EXISTS (
                SELECT FROM django_reliable_jobs_alert earlier
                 WHERE earlier.kind = alert.kind AND earlier.subject = alert.subject
                   AND NOT earlier.kind = ANY(%(until_seen)s::text[])
                   AND earlier.resolved_at > clock_timestamp() - %(anew)s::interval
                   AND earlier.told_at > clock_timestamp() - %(anew)s::interval)
            OR acknowledged_at IS NULL AND told_at < clock_timestamp() - %(repeat)s::interval)
     ORDER BY id LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED
), told AS (
    UPDATE django_reliable_jobs_alert alert SET told_at = clock_timestamp()
      FROM untold WHERE alert.id = untold.id
    RETURNING alert.id, CASE WHEN untold.told_at IS NULL THEN 'opened' ELSE 'repeated' END AS event
), said AS (
    INSERT INTO django_reliable_jobs_notice (alert_id, channel, event)
    SELECT told.id, channel.name, told.event FROM told CROSS JOIN unnest(%(channels)s::text[]) AS channel(name)
)
SELECT id FROM told WHERE event = 'opened' ORDER BY id
"""

ACKNOWLEDGE = """
UPDATE django_reliable_jobs_alert SET acknowledged_at = clock_timestamp(), acknowledged_by = %(by)s
 WHERE id = ANY(%(ids)s::bigint[]) AND resolved_at IS NULL AND acknowledged_at IS NULL RETURNING id
"""

PRUNE = """
WITH old AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_alert WHERE resolved_at < clock_timestamp() - %(age)s::interval LIMIT 1000
), unsaid AS (
    DELETE FROM django_reliable_jobs_notice WHERE alert_id IN (SELECT id FROM old)
)
DELETE FROM django_reliable_jobs_alert WHERE id IN (SELECT id FROM old)
"""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it should be: a kind, what it is about, and a sentence with the way out.

    The sentence names moments, not ages, so that it stays the same while nothing changes.
    """

    kind: str
    subject: str
    message: str
    count: int = 1

    @property
    def severity(self) -> str:
        return "warning" if self.kind in WARNINGS else "critical"


@dataclass(frozen=True)
class Flips:
    """The alerts that this call, and no other, opened or resolved."""

    opened: list[Alert]
    resolved: list[Alert]


def note(using: str, kind: str, subject: str, message: str, *, count: int = 1) -> None:
    """Record that something happened of which a person should know, in the current transaction; see `QUIET`.

    What happened before of the same kind to the same subject is counted on in the same alert.
    """
    note_all(using, [Finding(kind=kind, subject=subject, message=message, count=count)])


def note_all(using: str, happened: Sequence[Finding]) -> None:
    """Record what happened, in a savepoint: if it can't be recorded, it is logged, and the caller goes on."""
    counts = Counter[tuple[str, str]]()
    for each in happened:
        counts[each.kind, subject_of(each)] += each.count
    try:
        with transaction.atomic(using=using):
            _open(using, [replace(each, count=counts[each.kind, subject_of(each)]) for each in happened], adds=True)
    except DatabaseError:
        logger.exception("an alert could not be recorded: %s", "; ".join(each.message for each in happened))


def flip(using: str, found: Sequence[Finding], looked_for: Iterable[str], channels: Sequence[str]) -> Flips:
    """Bring the alerts in line with what was found: open, resolve, and say so through each of `channels`, once.

    `looked_for` are the kinds that would have been found: alerts of others stay open.
    """
    with short_transaction(using, lock_timeout=5, statement_timeout=20) as cursor:
        _open(using, found, adds=False)
        parameters = {
            **_columns(found),
            "channels": list(channels),
            "looked_for": list(looked_for),
            "repeat": settings.ALERT_REPEAT,
            "events": [kind for kind, quiet in QUIET.items() if quiet is not None],
            "quiets": [quiet for quiet in QUIET.values() if quiet is not None],
            "until_seen": _UNTIL_SEEN,
            "anew": TOLD_ANEW_AFTER,
        }
        cursor.execute(RESOLVE, parameters)
        resolved = [alert_id for (alert_id,) in cursor.fetchall()]
        cursor.execute(TELL, parameters)
        opened = [alert_id for (alert_id,) in cursor.fetchall()]
    alerts = Alert.objects.using(using).in_bulk([*opened, *resolved]) if opened or resolved else {}
    return Flips([alerts[each] for each in opened], [alerts[each] for each in resolved])


def acknowledge(using: str, alert_ids: Sequence[int], *, by: str) -> list[int]:
    """Note that a person knows of open alerts: they are not repeated any more; return those that were not known."""
    with engine_cursor(using) as cursor:
        cursor.execute(ACKNOWLEDGE, {"ids": sorted(alert_ids), "by": by[:150]})
        return sorted(alert_id for (alert_id,) in cursor.fetchall())


def find_events(using: str) -> list[Finding]:
    """Return what happened lately, or was not acknowledged yet, as findings."""
    with engine_cursor(using) as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    rows = Alert.objects.using(using).filter(resolved_at=None, acknowledged_at=None, kind__in=list(QUIET))
    recent = [each for each in rows.order_by("kind", "subject") if _is_recent(each, now)]
    return [Finding(kind=each.kind, subject=each.subject, message=each.message, count=each.count) for each in recent]


def prune(using: str) -> None:
    """Delete alerts that were resolved longer ago than ALERT_RETENTION."""
    parameters: dict[str, Any] = {"age": settings.ALERT_RETENTION}
    if settings.ALERT_RETENTION is not None:
        with engine_cursor(using) as cursor:
            cursor.execute(PRUNE, parameters)


_UNTIL_SEEN = [kind for kind, quiet in QUIET.items() if quiet is None]


def _is_recent(alert: Alert, now: datetime) -> bool:
    quiet = QUIET[alert.kind]
    return quiet is None or alert.seen_at > now - quiet


def _open(using: str, findings: Sequence[Finding], *, adds: bool) -> None:
    if findings:
        with engine_cursor(using) as cursor:
            cursor.execute(_OPEN, {**_columns(findings), "adds": adds, "until_seen": _UNTIL_SEEN})


def _columns(findings: Sequence[Finding]) -> dict[str, Any]:
    unique = list({(each.kind, subject_of(each)): each for each in findings}.items())
    return {
        "kinds": [str(kind) for (kind, _), _ in unique],
        "subjects": [subject for (_, subject), _ in unique],
        "severities": [each.severity for _, each in unique],
        "messages": [without_bad_characters(each.message)[:MAX_MESSAGE] for _, each in unique],
        "counts": [each.count for _, each in unique],
    }


def subject_of(finding: Finding) -> str:
    """Return the subject as it is stored."""
    return without_bad_characters(finding.subject)[:255]
