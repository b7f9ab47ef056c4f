"""The INSERT of jobs: one statement in the caller's transaction, which also wakes an idle worker at COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar

from django.db.models.base import ModelState

from django_reliable_jobs import arguments, clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.engine.wakeup import notify_idle
from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import Placement, Task

T = TypeVar("T")

CHUNK = 5000  # rows per statement
CHUNK_BYTES = 16 * 1024 * 1024  # of arguments per statement

NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"
DUE = f"coalesce(%(run_after)s::timestamptz, {NOW} + %(delay)s::interval, {NOW})"

COLUMNS = (
    "task, queue_name, priority, max_attempts, unique_until_start, meta, created_at, run_after, status, expires_at,"
    " batch_id, parent_id, args, kwargs, concurrency_key, rate_key, unique_hash"
)
_SHARED = (
    f"%(task)s, %(queue_name)s, %(priority)s, %(max_attempts)s, %(unique_until_start)s, %(meta)s::jsonb, {NOW}, {DUE},"
    f" CASE WHEN {DUE} > {NOW} THEN 'SCHEDULED' ELSE 'READY' END, {DUE} + %(expires)s::interval,"
    " %(batch_id)s::bigint, %(parent_id)s::bigint"
)
UNLESS_DUPLICATE = (
    " ON CONFLICT (unique_hash)"
    " WHERE unique_hash IS NOT NULL AND status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING') DO NOTHING"
)
# A job that is due within a minute also wakes the idle, so that they sleep until its moment and not past it.
# Of the parameters alone, so that the idle are looked for once in a statement.
_INSERTED = f"""
RETURNING id, unique_hash, status, run_after, created_at, expires_at, CASE
          WHEN status = 'READY' OR run_after < {NOW} + interval '1 minute' THEN {notify_idle("%(queue_name)s")} END"""


def _insert(columns: str, source: str) -> str:
    return f"INSERT INTO django_reliable_jobs_job ({columns}) {source}{_INSERTED}"


OF_CALL = f"{_SHARED}, %(args)s::jsonb, %(kwargs)s::jsonb, %(concurrency_key)s, %(rate_key)s, %(unique_hash)s::bytea"
_VALUES = f"VALUES ({OF_CALL})"
INSERT_ONE = _insert(COLUMNS, _VALUES)
INSERT_ONE_UNIQUE = _insert(COLUMNS, _VALUES + UNLESS_DUPLICATE)

_OF_GIVEN = f"{_SHARED}, given.args::jsonb, given.kwargs::jsonb, given.concurrency_key, given.rate_key"
# NULL in place of the keys of limits stands for as many NULLs as there are rows.
_GIVEN = "%(args)s::text[], %(kwargs)s::text[], %(concurrency_keys)s::text[], %(rate_keys)s::text[]"

# ORDER BY keeps the ids in the order of the calls.
INSERT_MANY = _insert(
    COLUMNS,
    f"SELECT {_OF_GIVEN}, NULL FROM unnest({_GIVEN}) WITH ORDINALITY"
    " AS given(args, kwargs, concurrency_key, rate_key, position) ORDER BY given.position",
)
# Here the order of insertion is that of the keys, so that two callers meet the same keys in the same order; the ids are
# given, in the order of the calls.
INSERT_MANY_UNIQUE = _insert(
    f"id, {COLUMNS}",
    f"SELECT given.id, {_OF_GIVEN}, given.unique_hash"
    f" FROM unnest(%(ids)s::bigint[], %(unique_hashes)s::bytea[], {_GIVEN})"
    " AS given(id, unique_hash, args, kwargs, concurrency_key, rate_key) ORDER BY given.unique_hash" + UNLESS_DUPLICATE,
)

TAKE_IDS = "SELECT nextval(pg_get_serial_sequence('django_reliable_jobs_job', 'id')) FROM generate_series(1, %s)"


class Call(NamedTuple):
    """What differs between the jobs of one placement: checked, as JSON texts."""

    args: str
    kwargs: str
    unique_hash: bytes = b""  # none
    concurrency_key: str | None = None
    rate_key: str | None = None


def insert_one(using: str, shared: Mapping[str, Any], call: Call) -> Job:
    """Insert a job without a unique key."""
    with engine_cursor(using) as cursor:
        cursor.execute(INSERT_ONE, {**shared, **call._asdict(), "unique_hash": None})
        return _as_job(using, shared, call, cursor.fetchone())


def insert_one_unique(using: str, shared: Mapping[str, Any], call: Call) -> Job | None:
    """Insert a job; None if a live job holds its unique key."""
    with engine_cursor(using) as cursor:
        cursor.execute(INSERT_ONE_UNIQUE, {**shared, **call._asdict()})
        row = cursor.fetchone()
    return None if row is None else _as_job(using, shared, call, row)


def insert_many(using: str, shared: Mapping[str, Any], calls: Sequence[Call]) -> list[Job]:
    """Insert a job per call, without unique keys, in the order of the calls."""
    with engine_cursor(using) as cursor:
        cursor.execute(INSERT_MANY, {**shared, **_columns(calls)})
        rows = sorted(cursor.fetchall())
    return [_as_job(using, shared, call, row) for call, row in zip(calls, rows, strict=True)]


def insert_many_unique(using: str, shared: Mapping[str, Any], calls: Mapping[int, Call]) -> dict[bytes, Job]:
    """Insert the jobs, given by id, whose unique key no live job holds; return them by key."""
    keys: dict[str, Any] = {"ids": list(calls), "unique_hashes": [call.unique_hash for call in calls.values()]}
    with engine_cursor(using) as cursor:
        cursor.execute(INSERT_MANY_UNIQUE, {**shared, **keys, **_columns(list(calls.values()))})
        return {bytes(row[1]): _as_job(using, shared, calls[row[0]], row) for row in cursor.fetchall()}


def _columns(calls: Sequence[Call]) -> dict[str, Any]:
    # One task says for all its calls whether they have a key.
    first = calls[0]
    return {
        "args": [call.args for call in calls],
        "kwargs": [call.kwargs for call in calls],
        "concurrency_keys": first.concurrency_key and [call.concurrency_key for call in calls],
        "rate_keys": first.rate_key and [call.rate_key for call in calls],
    }


def take_ids(using: str, count: int) -> list[int]:
    """Return ids for jobs to be inserted, ascending."""
    with engine_cursor(using) as cursor:
        cursor.execute(TAKE_IDS, [count])
        return sorted(job_id for (job_id,) in cursor.fetchall())


def chunks(items: Iterable[T], call_of: Callable[[T], Call]) -> Iterator[list[T]]:
    """Yield the items in lists of what one statement takes, by number and by the size of their calls."""
    chunk: list[T] = []
    size = 0
    for item in items:
        call = call_of(item)
        size += len(call.args) + len(call.kwargs)
        if chunk and (len(chunk) == CHUNK or size > CHUNK_BYTES):
            yield chunk
            chunk, size = [], len(call.args) + len(call.kwargs)
        chunk.append(item)
    if chunk:
        yield chunk


def shared_parameters(placement: Placement[..., Any]) -> dict[str, Any]:
    """Return what all jobs of a placement share."""
    task, due = placement.task, placement.run_after
    on_dead = task.on_dead.name if isinstance(task.on_dead, Task) else task.on_dead
    return {
        **parameters_of_name(task.name),
        **common_parameters(placement),
        "unique_until_start": task.unique_until == "start",
        "meta": None if on_dead is None else arguments.dump({"on_dead": on_dead}),
        "run_after": due if isinstance(due, datetime) else None,
        "delay": due if isinstance(due, timedelta) else None,
        "expires": task.expires,
        "batch_id": placement.batch_id,
        "parent_id": placement.parent_id,
    }


def common_parameters(placement: Placement[..., Any]) -> dict[str, Any]:
    """Return what no job is without, of the jobs of a placement."""
    task = placement.task
    return {
        "task": task.name,
        "queue_name": placement.queue_name or task.queue_name,
        "priority": task.priority if placement.priority is None else placement.priority,
        "max_attempts": task.max_attempts or settings.MAX_ATTEMPTS,
    }


def parameters_of_name(task: str) -> dict[str, Any]:
    """Return what jobs of a task share of which this process knows the name only."""
    return {
        "task": task,
        "queue_name": "default",
        "priority": 0,
        "max_attempts": settings.MAX_ATTEMPTS,
        "unique_until_start": False,
        "meta": None,
        "run_after": None,
        "delay": None,
        "expires": None,
        "batch_id": None,
        "parent_id": None,
        "moment": clock.moment(),
    }


def _as_job(using: str, shared: Mapping[str, Any], call: Call, row: tuple[Any, ...]) -> Job:
    job_id, _, status, run_after, created_at, expires_at, _ = row
    fields = {
        **fields_of_new(shared, created_at),
        "id": job_id,
        "args": arguments.load(call.args),
        "kwargs": arguments.load(call.kwargs),
        "status": status,
        "run_after": run_after,
        "concurrency_key": call.concurrency_key,
        "rate_key": call.rate_key,
        "unique_hash": call.unique_hash or None,
        "unique_until_start": shared["unique_until_start"],
        "expires_at": expires_at,
        "batch_id": shared["batch_id"],
        "parent_id": shared["parent_id"],
        "meta": None if shared["meta"] is None else arguments.load(shared["meta"]),
    }
    return new_job(using, fields)


def fields_of_new(given: Mapping[str, Any], moment: datetime) -> dict[str, Any]:
    """Return the fields of a job before its first claim that all jobs made at `moment`, and due then, share."""
    return {
        **_blank(),
        "task": given["task"],
        "queue_name": given["queue_name"],
        "priority": given["priority"],
        "max_attempts": given["max_attempts"],
        "created_at": moment,
        "run_after": moment,
    }


def new_job(using: str, fields: dict[str, Any]) -> Job:
    """Return the job of a row just inserted, from all its fields; they become the instance's own."""
    # Not through __init__, which takes longer for so many fields than PostgreSQL for the row.
    job = Job.__new__(Job)
    job.__dict__ = fields
    job._state = state = ModelState()
    state.adding, state.db = False, using
    return job


@cache
def _blank() -> dict[str, Any]:
    blank = Job(status="READY", unique_until_start=False, attempt=0, claims=0, losses=0, run=1, compensation="none")
    return vars(blank)
