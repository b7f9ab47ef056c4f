"""A page that takes too long is ended by the database, so that no search keeps it busy, however it came about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connections, transaction
from psycopg.errors import QueryCanceled

SECONDS = 10.0  # a statement


class OutOfPatience(Exception):
    """A statement took too long, and was ended."""


@contextmanager
def patience(using: str) -> Iterator[None]:
    """Run a block that only reads in a transaction none of whose statements takes longer than SECONDS."""
    try:
        with transaction.atomic(using=using):
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{SECONDS * 1000:.0f}ms"])
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise OutOfPatience from error
        raise
