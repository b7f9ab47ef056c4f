"""A row that the database refuses to change: what a project's own trigger or constraint may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

REFUSE = """
CREATE FUNCTION tests_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'this row stays'; END $$;
CREATE TRIGGER tests_refuse BEFORE UPDATE ON django_reliable_jobs_job
    FOR EACH ROW WHEN (old.id = {id} AND old.status = 'RUNNING' AND {condition}) EXECUTE FUNCTION tests_refuse();
"""


@contextmanager
def refused_row(job_id: int, condition: str = "true") -> Iterator[None]:
    """Refuse to end the attempt of this job inside the block, if the condition holds."""
    with connection.cursor() as cursor:
        cursor.execute(REFUSE.format(id=job_id, condition=condition))
        try:
            yield
        finally:
            cursor.execute("DROP FUNCTION tests_refuse CASCADE")
