"""The transactions of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, router, transaction
from django.db.backends.utils import CursorWrapper

from django_reliable_jobs.conf import settings
from django_reliable_jobs.models import Job


def default_database() -> str:
    """Return the alias to which the project's router sends jobs."""
    return router.db_for_write(Job)


@contextmanager
def short_transaction(using: str) -> Iterator[CursorWrapper]:
    """Run a block in one READ COMMITTED transaction, whatever the project's default is; inside another: a savepoint.

    A process that is stopped in the middle (SIGSTOP, a frozen machine) holds its rows for about a lease, not for ever: the
    server ends the session that sits idle in the transaction.
    """
    connection = connections[using]
    outermost = not connection.in_atomic_block
    with transaction.atomic(using=using), connection.cursor() as cursor:
        if outermost:
            cursor.execute(
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
                f" SET LOCAL idle_in_transaction_session_timeout = {int(settings.LEASE_SECONDS * 1000)}"
            )
        yield cursor
