"""What was enqueued, as assertions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max, Q

from django_reliable_jobs import registry
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job

MOST_SHOWN = 20


def assert_enqueued(
    task: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    queue_name: str | None = None,
    priority: int | None = None,
    run_after: datetime | timedelta | None = None,
    count: int | None = None,
    using: str | None = None,
) -> list[Job]:
    """Assert that a job of the task was enqueued, at least one or exactly `count`, and return such jobs.

    `args` and `kwargs` need not be all: a job fits if it has these arguments, however its call was written.
    `run_after` is the moment, or the time from its enqueue to it. Jobs that have been run meanwhile count too.

    For what a block of code enqueues: `with assert_enqueues(task, ...):`.
    """
    wanted = _Wanted(task, args, kwargs, queue_name, priority, run_after)
    return wanted.check(Job.objects.using(using or default_database()), count)


@contextmanager
def assert_enqueues(
    task: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    queue_name: str | None = None,
    priority: int | None = None,
    run_after: datetime | timedelta | None = None,
    count: int | None = None,
    using: str | None = None,
) -> Iterator[list[Job]]:
    """Assert that the block enqueues a job of the task; see `assert_enqueued`. The list holds the jobs afterwards."""
    wanted = _Wanted(task, args, kwargs, queue_name, priority, run_after)
    jobs = Job.objects.using(using or default_database())
    last = jobs.aggregate(last=Max("id"))["last"] or 0
    found: list[Job] = []
    yield found
    found += wanted.check(jobs.filter(pk__gt=last), count)


class _Wanted:
    """What a job must have."""

    def __init__(
        self,
        task: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        queue_name: str | None,
        priority: int | None,
        run_after: datetime | timedelta | None,
    ) -> None:
        self._name, self._names = _names(task)
        self._task = registry.find(self._name)
        self._arguments = self._wanted(*_as_stored(task, args, kwargs or {}))
        self._columns = {"queue_name": queue_name, "priority": priority}
        self._run_after = run_after

    def check(self, jobs: Any, count: int | None) -> list[Job]:
        found = [job for job in jobs.filter(self._names).order_by("id") if self._fits(job)]
        if not (found if count is None else len(found) == count):
            wanted = "no job" if count is None else f"{len(found)} jobs, not {count},"
            raise AssertionError(f"{wanted} of {self} was enqueued. {_enqueued(jobs)}")
        return found

    def __str__(self) -> str:
        said: dict[str, Any] = {name: value for name, value in self._columns.items() if value is not None}
        if self._run_after is not None:
            said["run_after"] = self._run_after
        given = ", ".join(f"{name}={value!r}" for name, value in self._arguments.items())
        return f"{self._name}({given})" + "".join(f" {name}={value}" for name, value in said.items())

    def _fits(self, job: Job) -> bool:
        given = self._bound(job.args, job.kwargs)
        due = job.run_after - job.created_at if isinstance(self._run_after, timedelta) else job.run_after
        return (
            all(name in given and given[name] == value for name, value in self._arguments.items())
            and all(value is None or getattr(job, name) == value for name, value in self._columns.items())
            and self._run_after in (None, due)
        )

    def _wanted(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._bound(args, kwargs)
        except TypeError as error:
            signature = "" if self._task is None else self._task.signature
            raise TypeError(f"{self._name}{signature} is never enqueued like this: {error}") from None

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if self._task is None:
            return {**{str(index): value for index, value in enumerate(args)}, **kwargs}
        bound = self._task.signature.bind_partial(*args, **kwargs).arguments
        kinds = {name: each.kind for name, each in self._task.signature.parameters.items()}
        for name in [name for name in bound if kinds[name] is inspect.Parameter.VAR_KEYWORD]:
            bound |= bound.pop(name)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in bound.items()}


def _names(task: Any) -> tuple[str, Q]:
    if isinstance(task, registry.Task):
        return task.name, Q(task__in=(task.name, *task.aliases))
    # A Task of Django's framework; one that went through another backend than its own has that one's alias behind it.
    name = task if isinstance(task, str) else getattr(task, "module_path", None)
    if name is None:
        raise TypeError(f"assert_enqueued() and assert_enqueues() take a task or its name, not {task!r:.80}")
    return name, Q(task=name) | Q(task__startswith=f"{name}@")


def _as_stored(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments as `enqueue()` writes them: by JSON rules of its own for a Task of Django's framework."""
    if isinstance(task, str | registry.Task):
        return list(args), dict(kwargs)
    from django_reliable_jobs.tasks_framework import normalize_json

    stored = json.loads(json.dumps(normalize_json([list(args), dict(kwargs)])))
    return stored[0], stored[1]


def _enqueued(jobs: Any) -> str:
    lines = [
        f"  {job.task}({', '.join([*map(repr, job.args), *(f'{k}={v!r}' for k, v in job.kwargs.items())])})"
        f" queue_name={job.queue_name} priority={job.priority} run_after={job.run_after.isoformat()}"
        for job in jobs.order_by("id")[:MOST_SHOWN]
    ]
    return "\n".join(["These were:", *lines]) if lines else "None was at all."
