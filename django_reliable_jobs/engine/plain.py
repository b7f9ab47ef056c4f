"""The usual job: due at once, with arguments and nothing else. Many are checked, inserted and returned list by list.

Where these are not prepared, PostgreSQL plans them in half the time of the general ones. What they leave out has the
right default.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db.backends.utils import CursorWrapper

from django_reliable_jobs import arguments, clock
from django_reliable_jobs.arguments import Carried
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import insert
from django_reliable_jobs.engine.transaction import engine_cursor, sending_ahead, short_transaction
from django_reliable_jobs.engine.wakeup import notify_idle
from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import Placement

PORTION = 500  # calls that are checked together

_INTO = """
INSERT INTO django_reliable_jobs_job (task, queue_name, priority, max_attempts, created_at, run_after, args, kwargs)"""
_SHARED = "%(task)s, %(queue_name)s, %(priority)s, %(max_attempts)s, statement_timestamp(), statement_timestamp()"
_NOTIFY = notify_idle("%(queue_name)s")

# The moment as a number, which is read in a fraction of the time; it is exact to the microsecond for 200 years.
INSERT_ONE = f"""{_INTO} VALUES ({_SHARED}, %(args)s, %(kwargs)s)
RETURNING id, date_part('epoch', created_at), {_NOTIFY}"""

# The arguments travel as one JSON array, which needs no escaping item by item, and the ids come back in one row. ORDER
# BY keeps the ids in the order of the calls.
INSERT_MANY = f"""
WITH inserted AS ({_INTO}
    SELECT {_SHARED}, '[]', given.kwargs
      FROM jsonb_array_elements(%(calls)s::jsonb) WITH ORDINALITY AS given(kwargs, place)
     ORDER BY given.place
    RETURNING id
)
SELECT array_agg(id ORDER BY id), statement_timestamp(), {_NOTIFY} FROM inserted
"""


class Portion(NamedTuple):
    """Some checked calls by keyword: as a JSON array, and as they come back from it."""

    text: str
    calls: list[dict[str, Any]]


def is_plain(placement: Placement[..., Any]) -> bool:
    """Return whether the jobs of a placement need none of the columns that are left out here."""
    return placement.is_plain and clock.moment() is None


def insert_one(using: str, placement: Placement[..., Any], args: Carried, kwargs: Carried) -> Job:
    """Insert a job with these checked arguments, which become its own."""
    given = insert.common_parameters(placement)
    with engine_cursor(using) as cursor:
        cursor.execute(INSERT_ONE, {**given, "args": args.text, "kwargs": kwargs.text})
        job_id, seconds, _ = cursor.fetchone()
    fields = insert.fields_of_new(given, datetime.fromtimestamp(seconds, UTC))
    fields["id"], fields["args"], fields["kwargs"] = job_id, args.value, kwargs.value
    return insert.new_job(using, fields)


def insert_many(using: str, placement: Placement[..., Any], calls: Sequence[Any]) -> list[Job] | None:
    """Insert a job per call, in their order; each is checked.

    None, and nothing is inserted, if one is wrong, or needs a closer look to be known to be right.
    """
    jobs: list[Job] = []
    chunks = _chunks(placement, calls)
    are_several = len(calls) > insert.CHUNK
    ahead = sending_ahead(using) if are_several else nullcontext()
    try:
        first = next(chunks)
        # What is found wrong later undoes what was inserted before it.
        with short_transaction(using, savepoint=are_several), ahead, _uncollected():
            sent = _send(using, placement, first)
            for chunk in chunks:
                following = _send(using, placement, chunk)
                jobs += sent.jobs()
                sent = following
            return jobs + sent.jobs()
    except _Doubtful:
        return None


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the cyclic garbage collector: it would go through all the new jobs, none of them garbage, several times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Doubtful(Exception):
    """A call is wrong, or is not known to be right."""


class _Sent(NamedTuple):
    """An INSERT whose result may not have come yet."""

    using: str
    given: dict[str, Any]
    calls: list[dict[str, Any]]
    cursor: CursorWrapper

    def jobs(self) -> list[Job]:
        with self.cursor as cursor:
            ids, moment, _ = cursor.fetchone()
        fields = insert.fields_of_new(self.given, moment)
        return [
            insert.new_job(self.using, {**fields, "id": job_id, "args": [], "kwargs": kwargs})
            for job_id, kwargs in zip(ids, self.calls, strict=True)
        ]


def _send(using: str, placement: Placement[..., Any], portions: list[Portion]) -> _Sent:
    given = insert.common_parameters(placement)
    cursor = engine_cursor(using)
    inner = ",".join(portion.text[1:-1] for portion in portions)
    cursor.execute(INSERT_MANY, {**given, "calls": f"[{inner}]"})
    return _Sent(using, given, [call for portion in portions for call in portion.calls], cursor)


def _chunks(placement: Placement[..., Any], calls: Sequence[Any]) -> Iterator[list[Portion]]:
    """Yield the calls, checked, as the portions of one statement after the other. Raises _Doubtful."""
    for start in range(0, len(calls), insert.CHUNK):
        yield list(_portions(placement, calls[start : start + insert.CHUNK]))


def _portions(placement: Placement[..., Any], calls: Sequence[Any]) -> Iterator[Portion]:
    size = min(PORTION, insert.CHUNK)
    max_bytes = min(settings.MAX_ARGUMENT_BYTES, insert.CHUNK_BYTES * size // insert.CHUNK)
    for start in range(0, len(calls), size):
        portion = list(calls[start : start + size])
        dumped = arguments.dump_calls(portion, accepts=placement.task.accepts, max_bytes=max_bytes)
        if dumped is None:
            raise _Doubtful
        yield Portion(*dumped)
