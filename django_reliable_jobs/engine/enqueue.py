"""Making jobs, in the caller's transaction: one INSERT, no commit hook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connections, transaction

from django_reliable_jobs import arguments, clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.engine.wakeup import notify_idle
from django_reliable_jobs.exceptions import DuplicateJob, InvalidArguments
from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import Placement, Task

CHUNK = 5000  # rows per INSERT of enqueue_many

_NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"
_DUE = f"coalesce(%(run_after)s::timestamptz, {_NOW} + %(delay)s::interval, {_NOW})"

_COLUMNS = (
    "task, queue_name, priority, max_attempts, unique_until_start, meta, created_at, run_after, status, expires_at,"
    " args, kwargs, unique_hash"
)
_SHARED = (
    f"%(task)s, %(queue_name)s, %(priority)s, %(max_attempts)s, %(unique_until_start)s, %(meta)s::jsonb, {_NOW}, {_DUE},"
    f" CASE WHEN {_DUE} > {_NOW} THEN 'SCHEDULED' ELSE 'READY' END, {_DUE} + %(expires)s::interval"
)
_UNLESS_DUPLICATE = (
    " ON CONFLICT (unique_hash) WHERE unique_hash IS NOT NULL AND status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING')"
    " DO NOTHING"
)
# A job that is due within a minute also wakes the idle, so that they sleep until its moment and not past it.
_INSERTED = f"""
SELECT id, unique_hash, status, run_after, created_at, expires_at, CASE
       WHEN status = 'READY' OR run_after < {_NOW} + interval '1 minute'
       THEN {notify_idle("inserted.queue_name")} END
  FROM inserted"""


def _insert(source: str) -> tuple[str, str]:
    plain = f"WITH inserted AS (INSERT INTO django_reliable_jobs_job ({_COLUMNS}) {source}"
    return (
        f"{plain} RETURNING *){_INSERTED}",
        f"{plain}{_UNLESS_DUPLICATE} RETURNING *){_INSERTED}",
    )


INSERT_ONE, INSERT_ONE_UNIQUE = _insert(
    f"VALUES ({_SHARED}, %(args)s::jsonb, %(kwargs)s::jsonb, %(unique_hash)s::bytea)"
)
# ORDER BY keeps ids in the order of the calls, and lets two callers meet the same keys in the same order.
INSERT_MANY, INSERT_MANY_UNIQUE = _insert(
    f"SELECT {_SHARED}, given.args::jsonb, given.kwargs::jsonb, given.unique_hash"
    " FROM unnest(%(args)s::text[], %(kwargs)s::text[], %(unique_hash)s::bytea[])"
    " WITH ORDINALITY AS given(args, kwargs, unique_hash, position) ORDER BY given.position"
)

# What has not started is locked until the caller commits, so that it runs after the caller's change. The lock may wait for a
# claim that then makes the row RUNNING: it is dropped here, not seen by the second arm's snapshot either, and the caller of
# this statement goes round once more.
FIND_DUPLICATES = """
WITH waiting AS MATERIALIZED (
    SELECT id, unique_hash FROM django_reliable_jobs_job
     WHERE unique_hash = ANY(%(hashes)s::bytea[]) AND unique_hash IS NOT NULL
       AND status IN ('SCHEDULED', 'READY', 'WAITING')
     ORDER BY unique_hash FOR NO KEY UPDATE
)
SELECT id, unique_hash FROM waiting
 UNION ALL
SELECT id, unique_hash FROM django_reliable_jobs_job
 WHERE unique_hash = ANY(%(hashes)s::bytea[]) AND unique_hash IS NOT NULL AND status = 'RUNNING'
"""

REPLACE_ARGUMENTS = """
UPDATE django_reliable_jobs_job SET args = %(args)s::jsonb, kwargs = %(kwargs)s::jsonb
 WHERE id = %(id)s AND status IN ('SCHEDULED', 'READY')
"""

POSTPONE = f"""
UPDATE django_reliable_jobs_job
   SET run_after = {_DUE}, expires_at = {_DUE} + %(expires)s::interval,
       status = CASE WHEN {_DUE} > {_NOW} THEN 'SCHEDULED' ELSE 'READY' END
 WHERE id = %(id)s AND status IN ('SCHEDULED', 'READY')
"""


class Call(NamedTuple):
    """What differs between the jobs of one placement: checked, as JSON texts."""

    args: str
    kwargs: str
    unique_hash: bytes | None


def enqueue(placement: Placement[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Job:
    """Insert one job in the caller's transaction, or find the live job that holds its unique key. See `Task.enqueue`."""
    using = placement.database or default_database()
    call = _check(placement, args, kwargs)
    parameters = {**_shared_parameters(placement), **call._asdict()}
    while True:
        with connections[using].cursor() as cursor:
            cursor.execute(INSERT_ONE if call.unique_hash is None else INSERT_ONE_UNIQUE, parameters)
            row = cursor.fetchone()
        if row is not None:
            return _as_job(using, parameters, call, row)
        found = _find_duplicates(using, [call])
        if found:
            _treat_duplicate(using, placement.task, parameters, found[call.unique_hash])
            return _load(using, found.values())[0]


def enqueue_many(placement: Placement[..., Any], calls: Iterable[Mapping[str, Any]]) -> list[Job]:
    """Insert a job per call in the caller's transaction; see `Task.enqueue_many`.

    Unique keys are inserted, then looked up, in the order of their hashes: two callers with the same keys in any order
    meet them in the same order, so that neither waits for the other while it is waited for.
    """
    using = placement.database or default_database()
    checked = [_check(placement, (), _as_kwargs(placement, each)) for each in calls]
    shared = _shared_parameters(placement)
    # A duplicate that raises undoes what was inserted before it; otherwise no savepoint is paid for.
    with transaction.atomic(using=using, savepoint=placement.task.on_duplicate == "raise"):
        if all(call.unique_hash is None for call in checked):
            rows = [
                row for chunk in _chunks(checked) for row in sorted(_insert_many(using, shared, chunk, INSERT_MANY))
            ]
            return [_as_job(using, shared, call, row) for call, row in zip(checked, rows, strict=True)]
        return _enqueue_unique(using, placement.task, shared, checked)


def insert_plain(using: str, task: Task[..., Any] | str, kwargs: Mapping[str, Any]) -> None:
    """Insert a job of a task that may be known by name only, in the current transaction; no uniqueness."""
    placement = Placement(task=task) if isinstance(task, Task) else None
    shared = _shared_parameters(placement) if placement else {**_DEFAULTS, "task": task, **_moment()}
    call = Call("[]", arguments.dump_result(dict(kwargs), task=str(shared["task"]), max_bytes=2**30), None)
    with connections[using].cursor() as cursor:
        cursor.execute(INSERT_ONE, {**shared, **call._asdict()})


def _enqueue_unique(using: str, task: Task[..., Any], shared: dict[str, Any], calls: Sequence[Call]) -> list[Job]:
    last_wins = task.on_duplicate == "replace"
    wanted = {call.unique_hash: call for call in (calls if last_wins else reversed(calls))}
    missing = sorted(wanted.values(), key=lambda call: call.unique_hash or b"")
    jobs: dict[bytes | None, Job] = {}
    duplicates: dict[bytes | None, int] = {}
    while missing:
        for chunk in _chunks(missing):
            for row in _insert_many(using, shared, chunk, INSERT_MANY_UNIQUE):
                jobs[bytes(row[1])] = _as_job(using, shared, wanted[bytes(row[1])], row)
        missing = [call for call in missing if call.unique_hash not in jobs]
        for chunk in _chunks(missing):
            duplicates |= _find_duplicates(using, chunk)
        missing = [call for call in missing if call.unique_hash not in duplicates]
    for unique_hash, job_id in duplicates.items():
        _treat_duplicate(using, task, {**shared, **wanted[unique_hash]._asdict()}, job_id)
    found = {job.pk: job for job in _load(using, duplicates.values())}
    jobs |= {unique_hash: found[job_id] for unique_hash, job_id in duplicates.items()}
    return _one_per_call(jobs, calls, task)


def _one_per_call(jobs: dict[bytes | None, Job], calls: Sequence[Call], task: Task[..., Any]) -> list[Job]:
    given_out: set[bytes | None] = set()
    result = []
    for call in calls:
        job = jobs[call.unique_hash]
        if call.unique_hash in given_out:  # the same key twice in one call
            if task.on_duplicate == "raise":
                raise DuplicateJob(job)
            job = copy(job)
            job.created = False
        given_out.add(call.unique_hash)
        result.append(job)
    return result


def _check(placement: Placement[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    task = placement.task
    texts = arguments.dump_arguments(
        task.signature, args, kwargs, task=task.name, max_bytes=settings.MAX_ARGUMENT_BYTES
    )
    return Call(*texts, _unique_hash(placement, args, kwargs))


def _unique_hash(placement: Placement[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes | None:
    task, rule = placement.task, placement.task.unique
    if placement.unique_key is not None:
        return arguments.hash_of_key(task.name, {"key": placement.unique_key})
    if rule is None:
        return None
    given = arguments.call_arguments(task.signature, args, kwargs)
    if callable(rule):
        key = rule(**given)
        if not isinstance(key, str) or not key:
            raise InvalidArguments(f"{task.name}: the function given as unique must return text, not {key!r}")
        return arguments.hash_of_key(task.name, {"key": key})
    names = list(given) if rule is True else rule
    return arguments.hash_of_key(task.name, {name: given[name] for name in names})


def _as_kwargs(placement: Placement[..., Any], call: Any) -> Mapping[str, Any]:
    if not isinstance(call, Mapping):
        raise InvalidArguments(
            f"{placement.task.name}: enqueue_many takes a dict of keyword arguments per job, not {call!r:.80}"
        )
    return call


_DEFAULTS: dict[str, Any] = {
    "queue_name": "default",
    "priority": 0,
    "unique_until_start": False,
    "meta": None,
    "run_after": None,
    "delay": None,
    "expires": None,
}


def _moment() -> dict[str, Any]:
    return {"moment": clock.moment(), "max_attempts": settings.MAX_ATTEMPTS}


def _shared_parameters(placement: Placement[..., Any]) -> dict[str, Any]:
    task = placement.task
    on_dead = task.on_dead if isinstance(task.on_dead, str) or task.on_dead is None else task.on_dead.name
    due = placement.run_after
    return {
        "task": task.name,
        "queue_name": placement.queue_name or task.queue_name,
        "priority": task.priority if placement.priority is None else placement.priority,
        "max_attempts": task.max_attempts or settings.MAX_ATTEMPTS,
        "unique_until_start": task.unique_until == "start",
        "meta": None
        if on_dead is None
        else arguments.dump_result({"on_dead": on_dead}, task=task.name, max_bytes=1000),
        "run_after": due if isinstance(due, datetime) else None,
        "delay": due if isinstance(due, timedelta) else None,
        "expires": task.expires,
        "moment": clock.moment(),
    }


def _chunks(calls: Sequence[Call]) -> Iterable[Sequence[Call]]:
    return (calls[start : start + CHUNK] for start in range(0, len(calls), CHUNK))


def _insert_many(using: str, shared: dict[str, Any], calls: Sequence[Call], statement: str) -> list[tuple[Any, ...]]:
    columns = {
        "args": [call.args for call in calls],
        "kwargs": [call.kwargs for call in calls],
        "unique_hash": [call.unique_hash for call in calls],
    }
    with connections[using].cursor() as cursor:
        cursor.execute(statement, {**shared, **columns})
        return list(cursor.fetchall())


def _find_duplicates(using: str, calls: Sequence[Call]) -> dict[bytes | None, int]:
    with connections[using].cursor() as cursor:
        cursor.execute(FIND_DUPLICATES, {"hashes": [call.unique_hash for call in calls]})
        return {bytes(unique_hash): job_id for job_id, unique_hash in cursor.fetchall()}


def _treat_duplicate(using: str, task: Task[..., Any], parameters: dict[str, Any], job_id: int) -> None:
    if task.on_duplicate == "raise":
        raise DuplicateJob(_load(using, [job_id])[0])
    statement = {"replace": REPLACE_ARGUMENTS, "postpone": POSTPONE}.get(task.on_duplicate)
    if statement:
        with connections[using].cursor() as cursor:
            cursor.execute(statement, {**parameters, "id": job_id})


def _load(using: str, ids: Iterable[int]) -> list[Job]:
    jobs = list(Job.objects.using(using).filter(pk__in=list(ids)))
    for job in jobs:
        job.created = False
    return jobs


def _as_job(using: str, shared: dict[str, Any], call: Call, row: tuple[Any, ...]) -> Job:
    job_id, _, status, run_after, created_at, expires_at, _ = row
    job = Job(
        id=job_id,
        task=shared["task"],
        queue_name=shared["queue_name"],
        priority=shared["priority"],
        args=arguments.load(call.args),
        kwargs=arguments.load(call.kwargs),
        status=status,
        run_after=run_after,
        created_at=created_at,
        attempt=0,
        max_attempts=shared["max_attempts"],
        claims=0,
        losses=0,
        run=1,
        unique_hash=call.unique_hash,
        unique_until_start=shared["unique_until_start"],
        expires_at=expires_at,
        meta=None if shared["meta"] is None else arguments.load(shared["meta"]),
        compensation=Job.Compensation.NONE,
    )
    job._state.adding, job._state.db = False, using
    return job
