"""A witness in the database: a trigger that notes how many jobs of a key are RUNNING whenever one is claimed.

It counts after the claim has picked its jobs, under a lock of its own that every claim of the key takes: what it counts
is the truth at that instant, whatever the claim saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

INSTALL = """
CREATE TABLE limit_witness (key text, running int, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION witness_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4711, hashtext(NEW.{column}));
    INSERT INTO limit_witness (key, running)
    SELECT NEW.{column}, count(*) FROM django_reliable_jobs_job
     WHERE status = 'RUNNING' AND {column} = NEW.{column};
    RETURN NULL;
END $$;
CREATE TRIGGER witness_limit AFTER UPDATE OF status ON django_reliable_jobs_job FOR EACH ROW
  WHEN (NEW.status = 'RUNNING' AND OLD.status <> 'RUNNING' AND NEW.{column} IS NOT NULL)
  EXECUTE FUNCTION witness_limit();
"""

REMOVE = """
DROP TRIGGER witness_limit ON django_reliable_jobs_job;
DROP FUNCTION witness_limit();
DROP TABLE limit_witness;
"""


class Witness:
    """What the trigger has seen so far."""

    def most_running(self, prefix: str = "") -> int:
        """The most jobs of one key, of those that begin like this, that were RUNNING at the moment of a claim."""
        return self._value("SELECT coalesce(max(running), 0) FROM limit_witness WHERE starts_with(key, %s)", prefix)

    def starts(self) -> int:
        return self._value("SELECT count(*) FROM limit_witness")

    def _value(self, statement: str, *parameters: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return int(cursor.fetchone()[0])


@contextmanager
def witnessed(column: str) -> Iterator[Witness]:
    """Watch the claims of jobs that have a key in this column."""
    with connection.cursor() as cursor:
        cursor.execute(INSTALL.replace("{column}", column))
    try:
        yield Witness()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(REMOVE)
