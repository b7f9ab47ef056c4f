"""The result of a Task that runs: what is asked of it comes from the row, and nothing is read if nobody asks."""

from __future__ import annotations

from copy import copy
from typing import Any

from django_reliable_jobs.backend import task_results
from django_reliable_jobs.context import JobContext
from django_reliable_jobs.engine import results
from django_reliable_jobs.tasks_framework import Task, TaskResult, TaskResultStatus

# Not known without a look at the row, and what stands for it should the row be gone when it is looked at.
READ: dict[str, Any] = {
    "enqueued_at": None,
    "started_at": None,
    "last_attempted_at": None,
    "worker_ids": [],
    "errors": [],
}


class RunningResult(TaskResult):  # type: ignore[type-arg]  # Django's own is not generic
    """A TaskResult whose rarely wanted fields are read when the first of them is wanted."""

    __slots__ = ("_job_id", "_using")

    def __getattr__(self, name: str) -> Any:
        # Called for what is not set: a field that has not been read yet.
        if name not in READ:
            raise AttributeError(name)
        self.read()
        return object.__getattribute__(self, name)

    def read(self) -> None:
        """Set the fields that are not known yet."""
        job = results.read(self._using, self._job_id)
        stored = None if job is None else task_results.result_of(job, self.task, self.backend)
        for name, value in READ.items():
            try:
                object.__getattribute__(self, name)
            except AttributeError:
                object.__setattr__(self, name, copy(value) if stored is None else getattr(stored, name))


def result_of_running(
    context: JobContext, task: Task[..., Any], backend: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> RunningResult:
    """Return the result of the running job of a context."""
    known = {
        "task": task_results.as_enqueued(
            task, backend=backend, queue_name=context.queue_name, priority=context.priority, run_after=None
        ),
        "id": str(context.id),
        "status": TaskResultStatus.RUNNING,
        "finished_at": None,
        "args": list(args),
        "kwargs": kwargs,
        "backend": backend,
        "_return_value": None,
        "_using": context.using,
        "_job_id": context.id,
    }
    if context.claims == 1:
        known["errors"] = []
    result = RunningResult.__new__(RunningResult)
    for name, value in known.items():
        object.__setattr__(result, name, value)
    return result
