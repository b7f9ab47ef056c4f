"""Sessions on which statements are prepared."""

from __future__ import annotations

from django.db import connection


def prepared() -> int:
    """Return how many statements are prepared on this thread's session."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        return int(cursor.fetchone()[0])
