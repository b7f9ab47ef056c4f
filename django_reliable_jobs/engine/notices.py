"""What is still to be said of alerts: taken by one sender at a time, tried again until it is said or too old."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from django_reliable_jobs.arguments import without_bad_characters
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.models import Notice

AT_ONCE = 500
GIVEN_UP_AFTER = timedelta(days=1)

# Put off before it is sent: whoever takes it and dies has lost nothing, and no second sender takes it meanwhile.
TAKE = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM django_reliable_jobs_notice WHERE channel = %(channel)s AND due_at <= clock_timestamp()
     ORDER BY id LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED
)
UPDATE django_reliable_jobs_notice notice
   SET due_at = clock_timestamp() + make_interval(secs => least(60 * 2 ^ notice.tries, 3600)), tries = notice.tries + 1
  FROM due WHERE notice.id = due.id RETURNING notice.id
"""


def take(using: str, channel: str) -> list[Notice]:
    """Return what is to be said now through a channel; it is due again later, unless `said` is called."""
    with short_transaction(using, lock_timeout=5, statement_timeout=20) as cursor:
        cursor.execute(TAKE, {"channel": channel})
        ids = [notice_id for (notice_id,) in cursor.fetchall()]
    return list(Notice.objects.using(using).filter(pk__in=ids).select_related("alert").order_by("pk")) if ids else []


def said(using: str, notices: Sequence[Notice]) -> None:
    """Forget what was said."""
    Notice.objects.using(using).filter(pk__in=[notice.pk for notice in notices]).delete()


def unsaid(using: str, notices: Sequence[Notice], error: str) -> list[Notice]:
    """Keep what could not be said, and why; return what is given up, as it is a day old."""
    rows = Notice.objects.using(using).filter(pk__in=[notice.pk for notice in notices])
    rows.update(error=without_bad_characters(error)[:1000])
    old = [notice for notice in notices if notice.due_at - notice.created_at > GIVEN_UP_AFTER]
    said(using, old)
    return old


def forget_channels(using: str, names: Collection[str]) -> None:
    """Drop what was to be said through channels that are no longer in the settings."""
    Notice.objects.using(using).exclude(channel__in=list(names)).delete()
