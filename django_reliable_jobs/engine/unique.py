"""One live job per key: insert it, or find the one that is there and treat it as the task says.

The guarantee is the partial unique index over the live statuses. An INSERT whose key another open transaction has just
inserted waits for the end of that transaction; a duplicate that has not started is locked until the caller's commit.
Several keys are inserted, and then looked up, in the order of their hashes: two callers with the same keys in any order
meet them in the same order, so that neither waits for the other while it is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from django_reliable_jobs import arguments
from django_reliable_jobs.engine.insert import (
    DUE,
    NOW,
    Call,
    chunks,
    insert_many_unique,
    insert_one_unique,
    take_ids,
)
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.exceptions import DuplicateJob, InvalidArguments
from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import Placement, Task

# What has not started is locked until the caller commits, so that it runs after the caller's change. The lock may wait
# for a claim that then makes the row RUNNING: it is dropped here, the second arm's snapshot does not see it either, and
# the caller of this statement goes round once more.
FIND_DUPLICATES = """
WITH waiting AS MATERIALIZED (
    SELECT * FROM django_reliable_jobs_job
     WHERE unique_hash = ANY(%(hashes)s::bytea[]) AND unique_hash IS NOT NULL
       AND status IN ('SCHEDULED', 'READY', 'WAITING')
     ORDER BY unique_hash FOR NO KEY UPDATE
)
SELECT * FROM waiting
 UNION ALL
SELECT * FROM django_reliable_jobs_job
 WHERE unique_hash = ANY(%(hashes)s::bytea[]) AND unique_hash IS NOT NULL AND status = 'RUNNING'
"""

# The treatments change what waits for a start, and nothing that has started: what has kept steps or checkpoints, or
# undoes them, goes on with its own arguments.
_HAS_NOTHING = """job.compensation = 'none' AND NOT EXISTS (
       SELECT 1 FROM django_reliable_jobs_checkpoint saved WHERE saved.job_id = job.id AND saved.run = job.run)"""
REPLACE = f"""
UPDATE django_reliable_jobs_job job SET args = given.args::jsonb, kwargs = given.kwargs::jsonb,
       concurrency_key = given.concurrency_key, rate_key = given.rate_key
  FROM unnest(%(ids)s::bigint[], %(args)s::text[], %(kwargs)s::text[], %(concurrency_keys)s::text[],
              %(rate_keys)s::text[]) AS given(id, args, kwargs, concurrency_key, rate_key)
 WHERE job.id = given.id AND job.status IN ('SCHEDULED', 'READY') AND {_HAS_NOTHING}
RETURNING job.*
"""

_LATER = f"greatest(job.run_after, {DUE})"
POSTPONE = f"""
UPDATE django_reliable_jobs_job job
   SET run_after = {_LATER}, expires_at = {_LATER} + %(expires)s::interval,
       status = CASE WHEN {_LATER} > {NOW} THEN 'SCHEDULED' ELSE 'READY' END
 WHERE job.id = ANY(%(ids)s::bigint[]) AND job.status IN ('SCHEDULED', 'READY') AND {_HAS_NOTHING}
RETURNING job.*
"""


def hash_of_call(placement: Placement[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the hash of a call's unique key, or b"" if it has none; args and kwargs have been checked."""
    task = placement.task
    if placement.unique_key is not None:
        return arguments.hash_of_key(task.name, placement.unique_key)
    if task.unique is None:
        return b""
    given = arguments.call_arguments(task.signature, args, kwargs)
    if not callable(task.unique):
        return arguments.hash_of_key(task.name, {name: given[name] for name in task.unique})
    key = task.unique(**arguments.as_keywords(task.signature, given))
    if not isinstance(key, str) or not key:
        raise InvalidArguments(f"{task.name}: the function given as unique must return text, not {key!r}")
    return arguments.hash_of_key(task.name, key)


def insert_or_find(using: str, task: Task[..., Any], shared: Mapping[str, Any], call: Call) -> Job:
    """Insert a job, or treat the live one that holds its key and return that."""
    while True:
        if inserted := insert_one_unique(using, shared, call):
            return inserted
        # In autocommit, the duplicate stays locked until it is treated.
        with short_transaction(using, savepoint=False):
            duplicates = _find_duplicates(using, [call.unique_hash])
            if task.on_duplicate != "raise":
                duplicates |= _treat(using, task, shared, {call.unique_hash: call}, duplicates)
        if duplicates:
            [duplicate] = duplicates.values()
            if task.on_duplicate == "raise":
                raise DuplicateJob(duplicate)
            return duplicate


def insert_or_find_many(
    using: str, task: Task[..., Any], shared: Mapping[str, Any], calls: Sequence[Call]
) -> list[Job]:
    """Insert a job per key, or treat the live ones that hold it; return a job per call, in the order of the calls.

    All keys are inserted before the first duplicate is locked: chunk by chunk, two callers could wait for each other.
    """
    wanted = _call_per_key(task, calls)
    ids = dict(zip(wanted, take_ids(using, len(wanted)), strict=True))
    jobs: dict[bytes, Job] = {}
    duplicates: dict[bytes, Job] = {}
    while missing := sorted(wanted.keys() - jobs.keys() - duplicates.keys()):
        for chunk in chunks(missing, wanted.__getitem__):
            jobs |= insert_many_unique(using, shared, {ids[key]: wanted[key] for key in chunk})
        for chunk in chunks([key for key in missing if key not in jobs], wanted.__getitem__):
            duplicates |= _find_duplicates(using, chunk)
    if duplicates and task.on_duplicate == "raise":
        raise DuplicateJob(next(duplicates[key] for key in wanted if key in duplicates))
    for chunk in chunks(list(duplicates), wanted.__getitem__):
        duplicates |= _treat(using, task, shared, wanted, {key: duplicates[key] for key in chunk})
    return _job_per_call(jobs | duplicates, calls)


def _call_per_key(task: Task[..., Any], calls: Sequence[Call]) -> dict[bytes, Call]:
    """Return the call that counts for each key, in the order in which the keys come."""
    result: dict[bytes, Call] = {}
    for index, call in enumerate(calls):
        if call.unique_hash not in result or task.on_duplicate == "replace":
            result[call.unique_hash] = call
        elif task.on_duplicate == "raise":
            first = next(i for i, each in enumerate(calls) if each.unique_hash == call.unique_hash)
            raise DuplicateJob(None, f"{task.name}: calls[{first}] and calls[{index}] have the same unique key")
    return result


def _job_per_call(jobs: Mapping[bytes, Job], calls: Sequence[Call]) -> list[Job]:
    given_out: set[bytes] = set()
    result = []
    for call in calls:
        job = jobs[call.unique_hash]
        if call.unique_hash in given_out:  # the same key twice in one list of calls
            job = copy(job)
            job.created = False
        given_out.add(call.unique_hash)
        result.append(job)
    return result


def _find_duplicates(using: str, hashes: Sequence[bytes]) -> dict[bytes, Job]:
    return _by_hash(using, FIND_DUPLICATES, {"hashes": list(hashes)})


def _treat(
    using: str,
    task: Task[..., Any],
    shared: Mapping[str, Any],
    wanted: Mapping[bytes, Call],
    duplicates: Mapping[bytes, Job],
) -> dict[bytes, Job]:
    """Do with locked duplicates what the task says; return those that changed, as they are now."""
    statement = {"replace": REPLACE, "postpone": POSTPONE}.get(task.on_duplicate)
    if statement is None or not duplicates:
        return {}
    calls = [wanted[key] for key in duplicates]
    given = {
        "ids": [job.pk for job in duplicates.values()],
        "args": [call.args for call in calls],
        "kwargs": [call.kwargs for call in calls],
        "concurrency_keys": [call.concurrency_key for call in calls],
        "rate_keys": [call.rate_key for call in calls],
    }
    return _by_hash(using, statement, {**shared, **given})


def _by_hash(using: str, statement: str, parameters: dict[str, Any]) -> dict[bytes, Job]:
    jobs = list(Job.objects.using(using).raw(statement, parameters))
    for job in jobs:
        job.created = False
    return {bytes(job.unique_hash or b""): job for job in jobs}
