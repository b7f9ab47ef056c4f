"""The moment that engine statements take for now.

In production it is the database's: `moment()` returns None and the statements read the database's clock. Tests move it
with `django_reliable_jobs.testing.at()`. Leases, heartbeats and leadership never look here: they know only the
database's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

_moment: ContextVar[datetime | None] = ContextVar("reliable_jobs_moment", default=None)


def moment() -> datetime | None:
    """Return the moment set by a test, or None for the database's clock."""
    return _moment.get()


@contextmanager
def moved_to(moment: datetime) -> Iterator[None]:
    """Take `moment` (aware) for now inside the block, in this thread and in what copies its context."""
    reset = _moment.set(moment)
    try:
        yield
    finally:
        _moment.reset(reset)
