"""The transactions of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, router, transaction
from django.db.backends.utils import CursorWrapper

from django_reliable_jobs.conf import settings
from django_reliable_jobs.models import Job

# Until the transaction ends, the server ends a session that sits idle in it for longer than a lease, or sooner if that
# is what is set already: a process that is stopped (SIGSTOP, a frozen machine) holds no row for ever. An SQL
# expression, so that it travels in the statement that takes the lock. Outside a transaction it has no effect.
LIMIT_IDLE = """set_config('idle_in_transaction_session_timeout', ceil(1000 * least(%(lease)s::float8, coalesce(nullif(
    extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval), 0),
    %(lease)s::float8)))::text,
    true)"""


def default_database() -> str:
    """Return the alias to which the project's router sends jobs."""
    return router.db_for_write(Job)


@contextmanager
def short_transaction(
    using: str, *, lock_timeout: float | None = None, statement_timeout: float | None = None
) -> Iterator[CursorWrapper]:
    """Run a block in one READ COMMITTED transaction, whatever the project's default is; inside another: a savepoint.

    The timeouts, in seconds, hold in a transaction of its own only.
    """
    connection = connections[using]
    outermost = not connection.in_atomic_block
    with transaction.atomic(using=using), connection.cursor() as cursor:
        if outermost:
            timeouts = {
                "idle_in_transaction_session_timeout": settings.LEASE_SECONDS,
                "lock_timeout": lock_timeout,
                "statement_timeout": statement_timeout,
            }
            cursor.execute(
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
                + "".join(f"; SET LOCAL {name} = {int(each * 1000)}" for name, each in timeouts.items() if each)
            )
        yield cursor
