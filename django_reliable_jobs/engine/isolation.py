"""One bad row stops no other: a batch that the database refuses is split down to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from django.db import DataError
from django.db import Error as DatabaseError

from django_reliable_jobs.engine.lifecycle import Ending

# By the first two characters of the SQLSTATE: data exception, integrity constraint, limit exceeded, raised by a
# function. Anything else is the fault of the connection, the server or the schema, and of no row.
_OF_A_ROW = ("22", "23", "54", "P0")


class Refused(NamedTuple):
    """An ending that the database will not write, and what it said."""

    ending: Ending
    error: Exception


def is_of_a_row(error: BaseException) -> bool:
    """Return whether the database refused what a row was to become, as a trigger or a constraint of the project may."""
    state = str(getattr(error.__cause__, "sqlstate", None) or "")
    # Without a state the driver itself refused a value, before it was sent.
    return state.startswith(_OF_A_ROW) or (not state and isinstance(error, DataError | ValueError | TypeError))


def write_each(
    write: Callable[[Sequence[Ending]], set[int]], endings: Sequence[Ending]
) -> tuple[set[int], list[Refused]]:
    """Write endings together if the database lets us, otherwise in halves; return what was written and what can't be.

    `write` is one transaction or savepoint and returns the ids of the jobs that it wrote.
    """
    if not endings:
        return set(), []
    try:
        return write(endings), []
    except (DatabaseError, ValueError, TypeError) as error:
        if not is_of_a_row(error):
            raise
        if len(endings) == 1:
            return set(), [Refused(endings[0], error)]
    written: set[int] = set()
    refused: list[Refused] = []
    middle = len(endings) // 2
    for half in (endings[:middle], endings[middle:]):
        half_written, half_refused = write_each(write, half)
        written |= half_written
        refused += half_refused
    return written, refused
