"""The backend itself: enqueue, results, checks; and from the name in a row to the task that a worker runs.

Tasks may be declared before the models are loaded, so that what needs those is imported when it is called.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, cast

from django.apps import apps
from django.core import checks
from django.core.signals import setting_changed

from django_reliable_jobs import exceptions, registry
from django_reliable_jobs.backend import policies
from django_reliable_jobs.backend.locating import is_open, locate
from django_reliable_jobs.backend.policies import ReliableTask
from django_reliable_jobs.declaration import MAX_QUEUE_NAME
from django_reliable_jobs.placement import tell
from django_reliable_jobs.tasks_framework import (
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
)

logger = logging.getLogger("django_reliable_jobs")

P = ParamSpec("P")
R = TypeVar("R")

LARGEST_ID = 2**63 - 1

_seen: dict[str, Task[..., Any]] = {}  # Tasks that were validated here, by module path
_adopted: dict[tuple[str, str], registry.Task[..., Any]] = {}  # by module path and alias of the backend


class ReliableBackend(BaseTaskBackend):
    """Jobs of Django's Tasks framework, in the caller's transaction.

    `OPTIONS` may say: `database` (alias; default: where the router sends jobs), `max_attempts` (default 1), `backoff`,
    `retry_on`, `give_up_on`, `timeout`, `expires`, `on_dead` for all Tasks of the backend, and `POLICIES`, a dict from
    a Task's module path to a dict of these and `atomic`, `unique`, `unique_until`, `on_duplicate`, `concurrency`,
    `rate_limit`. They mean what they mean in `django_reliable_jobs.task`.
    """

    task_class = ReliableTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def database(self) -> str:
        """The alias of the database that holds the jobs."""
        from django_reliable_jobs.engine.transaction import default_database

        return self.options.get("database") or default_database()

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raise InvalidTask for a Task that can't be a job."""
        super().validate_task(task)
        if len(task.queue_name) > MAX_QUEUE_NAME:
            raise InvalidTask(f"Queue '{task.queue_name}' has a name of more than {MAX_QUEUE_NAME} characters.")
        seen = _seen.get(task.module_path)
        if seen is None or seen.func is not task.func:
            self._build(task, task.func, takes_context=task.takes_context)  # refuses, where it is said, what can't hold
            _seen[task.module_path] = task

    def enqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Make a job of this call, in the caller's transaction. Raises what Django's backends raise."""
        from django_reliable_jobs.backend import running, task_results

        self.validate_task(task)
        placement = registry.Placement(task=self._known(task)).using(
            queue_name=task.queue_name,
            priority=int(task.priority),
            run_after=task.run_after,
            database=self.options.get("database"),
        )
        job = placement.insert(*running.as_json(list(args)), **running.as_json(kwargs))
        # A job that `unique` found may have begun.
        result: Any = task_results.result_of_new(job, task) if job.created else self.get_result(str(job.pk))
        task_enqueued.send(type(self), task_result=result)
        if tell([job]):  # a test may run it at once
            result.refresh()
        return cast("TaskResult[P, R]", result)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the result of this id. Raises TaskResultDoesNotExist for an id that no job of a known Task has."""
        from django_reliable_jobs.backend import task_results
        from django_reliable_jobs.engine import results

        job = results.read(self.database, int(result_id)) if _is_number_of_job(str(result_id)) else None
        if job is None:
            raise TaskResultDoesNotExist(result_id)
        declared, backend = _resolve(job.task)
        if declared is None or backend is None:
            raise TaskResultDoesNotExist(f"{result_id}: {job.task!r} is no Task of a ReliableBackend here")
        return task_results.result_of(job, declared, backend.alias)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Return what would fail later."""
        if not apps.is_installed("django_reliable_jobs"):
            return [
                checks.Error(
                    f"TASKS[{self.alias!r}] is a ReliableBackend, but its app is not installed.",
                    hint="Add 'django_reliable_jobs' to INSTALLED_APPS.",
                    id="reliable_jobs.E021",
                )
            ]
        mistakes = list(policies.find_mistakes(self.options)) or [*self._mistakes_in_values(), *self._unknown_paths()]
        hint = "What OPTIONS may say: docs/how-to/django-tasks.md."
        return [
            checks.Error(f"TASKS[{self.alias!r}]: {mistake}", hint=hint, id="reliable_jobs.E022")
            for mistake in mistakes
        ]

    def _mistakes_in_values(self) -> Iterator[str]:
        for task in list(_seen.values()):
            if task.backend == self.alias:
                try:
                    self._build(task, task.func, takes_context=task.takes_context)
                except InvalidTask as error:
                    yield str(error)

    def _unknown_paths(self) -> list[str]:
        paths = [path for path in self.options.get("POLICIES", {}) if locate(path) is None]
        return [f"OPTIONS['POLICIES'] names {path!r}, which is no Task." for path in paths]

    def _known(self, task: Task[..., Any]) -> registry.Task[..., Any]:
        """Return the Task as one of ours, sure that a worker finds it by its name. Raises InvalidTask."""
        adopted = _adopted.get((task.module_path, self.alias))
        if adopted is not None and getattr(adopted.function, "__wrapped__", None) is task.func:
            return adopted
        declared = locate(task.module_path)
        if declared is None or declared.func is not task.func:
            raise InvalidTask(_why_not_found(task.module_path))
        if not isinstance(declared.get_backend(), ReliableBackend):
            raise InvalidTask(
                f"A worker would not run the Task {task.module_path}: it is declared for the backend"
                f" {declared.backend!r}, which is no ReliableBackend. Declare it with @task(backend={self.alias!r})."
            )
        return self.adopt(declared)

    def adopt(self, declared: Task[..., Any]) -> registry.Task[..., Any]:
        """Return a declared Task as one of ours, which is found by its name from now on. Raises InvalidTask."""
        from django_reliable_jobs.backend import running

        built = self._build(declared, running.as_function(declared, self))
        adopted = replace(built, on_outcome=running.listener(self))
        registry.register(adopted, is_on_demand=True)
        _adopted[declared.module_path, self.alias] = adopted
        return adopted

    def _build(self, task: Task[..., Any], function: Any, *, takes_context: bool = False) -> registry.Task[..., Any]:
        # A Task that is enqueued through another backend than its own has that one's policy: it is another task.
        declared = _seen.get(task.module_path, task)
        name = task.module_path if declared.backend == self.alias else f"{task.module_path}@{self.alias}"
        try:
            return registry.build(
                function,
                name=name,
                queue_name=task.queue_name,
                priority=int(task.priority),
                takes_context=takes_context,
                **policies.policy_of(task, self.options),
            )
        except exceptions.InvalidTask as error:
            raise InvalidTask(str(error)) from None


def find(name: str) -> registry.Task[..., Any] | None:
    """Return the Task that a row names as one of ours, or None. Never raises."""
    declared, backend = _resolve(name)
    if declared is None or backend is None:
        return None
    try:
        return backend.adopt(declared)
    except InvalidTask as error:
        logger.error("%s", error)
        return None


def adopt_seen() -> None:
    """Let the Tasks be found by name that were declared so far; called once, when the apps are ready."""
    for path in list(_seen):
        find(path)


def _is_number_of_job(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_ID)) and int(text) <= LARGEST_ID


def _why_not_found(path: str) -> str:
    module = path.rpartition(".")[0]
    if is_open(module):
        return f"A worker can't find the Task {path}: there is no such Task at the top level of that module."
    return (
        f"A worker would not run the Task {path}: {module} is in no installed app. Add the app to INSTALLED_APPS, or"
        " the module to RELIABLE_JOBS['TASK_MODULES']."
    )


def _resolve(name: str) -> tuple[Task[..., Any] | None, ReliableBackend | None]:
    """Return the Task and the backend that a name in a row stands for."""
    path, _, alias = name.partition("@")
    declared = locate(path)
    if declared is None:
        return None, None
    try:
        backends = declared.get_backend(), task_backends[alias or declared.backend]
    except InvalidTaskBackend:
        return None, None
    own, chosen = (each if isinstance(each, ReliableBackend) else None for each in backends)
    return (declared, chosen) if own is not None else (None, None)


def _forget(*, setting: str, **_: Any) -> None:
    """Withdraw the adopted Tasks: their policies come from settings that a test has changed."""
    if setting == "TASKS":
        for adopted in _adopted.values():
            registry.withdraw(adopted.name)
        _adopted.clear()


registry.add_finder(find)
setting_changed.connect(_forget, dispatch_uid="reliable_jobs_adopted_tasks")
