"""Making jobs, in the caller's transaction: check, then one INSERT, no commit hook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import ProgrammingError

from django_reliable_jobs import arguments
from django_reliable_jobs.arguments import Carried
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import insert, plain, unique
from django_reliable_jobs.engine.insert import Call
from django_reliable_jobs.engine.requirements import note_migrate, noting_migrate
from django_reliable_jobs.engine.transaction import default_database, short_transaction
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import Placement, Task


def enqueue(placement: Placement[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Job:
    """Insert one job in the caller's transaction, or find the live job of its unique key. See `Task.enqueue`."""
    using = placement.database or default_database()
    try:
        if plain.is_plain(placement):
            return plain.insert_one(using, placement, *_check_arguments(placement, args, kwargs))
        call, shared = _check(placement, args, kwargs), insert.shared_parameters(placement)
        if call.unique_hash:
            return unique.insert_or_find(using, placement.task, shared, call)
        return insert.insert_one(using, shared, call)
    except ProgrammingError as error:
        note_migrate(error)
        raise


@noting_migrate
def enqueue_many(placement: Placement[..., Any], calls: Iterable[Mapping[str, Any]]) -> list[Job]:
    """Insert a job per call in the caller's transaction; see `Task.enqueue_many`."""
    using = placement.database or default_database()
    calls = list(calls)
    if not calls:
        return []
    if plain.is_plain(placement) and (jobs := plain.insert_many(using, placement, calls)) is not None:
        return jobs
    shared = insert.shared_parameters(placement)
    checked = [_check_one_of_many(placement, index, call) for index, call in enumerate(calls)]
    # DuplicateJob undoes what was inserted before it; otherwise no savepoint is paid for.
    with short_transaction(using, savepoint=placement.task.on_duplicate == "raise"):
        if checked[0].unique_hash:
            return unique.insert_or_find_many(using, placement.task, shared, checked)
        chunks = insert.chunks(checked, lambda call: call)
        return [job for chunk in chunks for job in insert.insert_many(using, shared, chunk)]


def check_scheduled(placement: Placement[..., Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the jobs of a schedule share, checked, for `scheduled_jobs.insert`. Raises InvalidArguments."""
    call = _check(placement, (), kwargs)
    return {**insert.shared_parameters(placement), **call._asdict(), "unique_hash": call.unique_hash or None}


def insert_plain(using: str, task: Task[..., Any] | str, kwargs: Mapping[str, Any]) -> None:
    """Insert a job of a task that may be known by name only, in the current transaction; no uniqueness."""
    text = arguments.dump(dict(kwargs))
    if isinstance(task, str):
        insert.insert_one(using, insert.parameters_of_name(task), Call("[]", text))
    else:
        call = Call("[]", text, **_keys_of_limits(task, (), kwargs))
        insert.insert_one(using, insert.shared_parameters(Placement(task=task)), call)


def _check(placement: Placement[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    positional, named = _check_arguments(placement, args, kwargs)
    unique_hash = unique.hash_of_call(placement, args, kwargs)
    return Call(positional.text, named.text, unique_hash, **_keys_of_limits(placement.task, args, kwargs))


def _check_arguments(
    placement: Placement[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Carried, Carried]:
    task = placement.task
    return arguments.dump_arguments(
        task.signature,
        args,
        kwargs,
        task=task.name,
        max_bytes=settings.MAX_ARGUMENT_BYTES,
        sensitive=task.sensitive,
        accepts=task.accepts,
    )


def _keys_of_limits(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    keys: dict[str, str] = {}
    if task.concurrency is not None or task.rate_limit is not None:
        given = arguments.call_arguments(task.signature, args, kwargs)
        if task.concurrency is not None:
            keys["concurrency_key"] = task.concurrency.key(task.name, given)
        if task.rate_limit is not None:
            keys["rate_key"] = task.rate_limit.key(task.name, given)
    return keys


def _check_one_of_many(placement: Placement[..., Any], index: int, call: Any) -> Call:
    if not isinstance(call, Mapping):
        raise InvalidArguments(
            f"{placement.task.name}: enqueue_many takes a dict of keyword arguments per job, not {call!r:.80}"
        )
    try:
        return _check(placement, (), call)
    except InvalidArguments as error:
        raise InvalidArguments(f"calls[{index}]: {error}") from None
