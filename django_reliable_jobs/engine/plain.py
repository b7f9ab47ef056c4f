"""The usual job: due at once, with arguments and nothing else. Many are checked, inserted and returned list by list.

PostgreSQL plans each INSERT anew, as prepared statements do not get through transaction poolers, and plans these in
half the time of the general ones. What they leave out has the right default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django_reliable_jobs import arguments
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import insert
from django_reliable_jobs.engine.insert import Call
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.engine.wakeup import notify_idle
from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import Placement

PORTION = 500  # calls that are checked together

_INTO = """
INSERT INTO django_reliable_jobs_job (task, queue_name, priority, max_attempts, created_at, run_after, args, kwargs)"""
_SHARED = "%(task)s, %(queue_name)s, %(priority)s, %(max_attempts)s, statement_timestamp(), statement_timestamp()"
_NOTIFY = notify_idle("%(queue_name)s")

INSERT_ONE = f"{_INTO} VALUES ({_SHARED}, %(args)s, %(kwargs)s) RETURNING id, created_at, {_NOTIFY}"

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


def is_plain(placement: Placement[..., Any], shared: Mapping[str, Any]) -> bool:
    """Return whether the jobs of a placement need none of the columns that are left out here."""
    task = placement.task
    has_keys = (task.unique, placement.unique_key, task.concurrency, task.rate_limit) != (None, None, None, None)
    return not has_keys and all(
        shared[name] is None for name in ("meta", "run_after", "delay", "expires", "moment", "batch_id")
    )


def insert_one(using: str, shared: Mapping[str, Any], call: Call) -> Job:
    """Insert a job."""
    with engine_cursor(using) as cursor:
        cursor.execute(INSERT_ONE, {**shared, "args": call.args, "kwargs": call.kwargs})
        job_id, moment, _ = cursor.fetchone()
    args, kwargs = arguments.load(call.args), arguments.load(call.kwargs)
    fields = insert.fields_of_new(shared)
    return insert.new_job(using, {**fields, **_moments(moment), "id": job_id, "args": args, "kwargs": kwargs})


def portions(placement: Placement[..., Any], calls: Sequence[Any]) -> list[Portion] | None:
    """Return the calls, all of them checked; None if one is wrong, or needs a closer look to be known to be right."""
    result = []
    size = min(PORTION, insert.CHUNK)
    max_bytes = min(settings.MAX_ARGUMENT_BYTES, insert.CHUNK_BYTES * size // insert.CHUNK)
    for start in range(0, len(calls), size):
        portion = list(calls[start : start + size])
        dumped = arguments.dump_calls(placement.task.signature, portion, max_bytes=max_bytes)
        if dumped is None:
            return None
        result.append(Portion(*dumped))
    return result


def insert_many(using: str, shared: Mapping[str, Any], given: Sequence[Portion]) -> list[Job]:
    """Insert a job per call, in their order."""
    jobs: list[Job] = []
    at_once = max(insert.CHUNK // PORTION, 1)
    for start in range(0, len(given), at_once):
        jobs += _insert_portions(using, shared, given[start : start + at_once])
    return jobs


def _insert_portions(using: str, shared: Mapping[str, Any], given: Sequence[Portion]) -> list[Job]:
    inner = ",".join(portion.text[1:-1] for portion in given)
    with engine_cursor(using) as cursor:
        cursor.execute(INSERT_MANY, {**shared, "calls": f"[{inner}]"})
        ids, moment, _ = cursor.fetchone()
    fields = {**insert.fields_of_new(shared), **_moments(moment)}
    calls = (call for portion in given for call in portion.calls)
    return [
        insert.new_job(using, {**fields, "id": job_id, "args": [], "kwargs": kwargs})
        for job_id, kwargs in zip(ids, calls, strict=True)
    ]


def _moments(moment: Any) -> dict[str, Any]:
    return {"created_at": moment, "run_after": moment}
