"""Rows of the project that refer to jobs by a foreign key: a job that one refers to is kept, whatever its age."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, NamedTuple

from django_reliable_jobs import clock
from django_reliable_jobs.engine.kinds import IS_OF_KIND, KINDS
from django_reliable_jobs.engine.transaction import engine_cursor

logger = logging.getLogger("django_reliable_jobs")

MOST_COUNTED = 1000

# Those that would forbid to delete the job; ON DELETE CASCADE and SET NULL of the database's own don't. Names are
# quoted, and with their schema if they need it.
FIND = r"""
SELECT referrer.conrelid::regclass::text, quote_ident(attribute.attname)
  FROM pg_constraint referrer
  JOIN pg_class class ON class.oid = referrer.conrelid
  JOIN pg_attribute attribute ON attribute.attrelid = referrer.conrelid AND attribute.attnum = referrer.conkey[1]
 WHERE referrer.contype = 'f' AND referrer.confrelid = 'django_reliable_jobs_job'::regclass
   AND referrer.confdeltype IN ('a', 'r') AND referrer.conparentid = 0 AND cardinality(referrer.conkey) = 1
   AND class.relname NOT LIKE 'django\_reliable\_jobs\_%'
 ORDER BY 1, 2
"""

NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"
KEPT = f"""
WITH RECURSIVE {KINDS}
SELECT count(*), min(id) FROM (
    SELECT old.id FROM kind CROSS JOIN LATERAL (
           SELECT job.id FROM django_reliable_jobs_job job
            WHERE {IS_OF_KIND} AND job.finished_at < {NOW} - %(age)s::interval AND {{is_named}}
            ORDER BY job.finished_at LIMIT %(most)s) old LIMIT %(most)s) kept
"""


class Reference(NamedTuple):
    """A column of the project that refers to jobs; both names as SQL."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


def find(using: str) -> list[Reference]:
    """Return the columns that keep jobs from being deleted."""
    with engine_cursor(using) as cursor:
        cursor.execute(FIND)
        return [Reference._make(row) for row in cursor.fetchall()]


def is_free(references: list[Reference]) -> str:
    """Return the SQL condition that no row refers to the row `job`."""
    return " AND ".join(f"NOT {_is_named(each)}" for each in references) or "true"


def _is_named(reference: Reference) -> str:
    table, column = (name.replace("%", "%%") for name in reference)
    return f"EXISTS (SELECT 1 FROM {table} referrer WHERE referrer.{column} = job.id)"


_told: dict[tuple[str, str, Reference], int] = {}  # the job that was named last


def report_kept(using: str, references: list[Reference], status: str, age: timedelta) -> None:
    """Say which ended jobs stay although they are old enough to go, and for whose sake; not again and again."""
    for reference in references:
        with engine_cursor(using) as cursor:
            parameters: dict[str, Any] = {
                "statuses": [status],
                "age": age,
                "moment": clock.moment(),
                "most": MOST_COUNTED,
            }
            cursor.execute(KEPT.format(is_named=_is_named(reference)), parameters)
            count, first = cursor.fetchone()
        if count and _told.get((using, status, reference)) != first:
            _told[using, status, reference] = first
            number = f"{count} or more" if count == MOST_COUNTED else count
            logger.warning(
                "%s ended jobs (%s) are older than RETENTION and are kept, as %s refers to them: job %s is one",
                *(number, status, reference, first),
            )
