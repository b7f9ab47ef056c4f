"""A job as a TaskResult of Django's Tasks framework."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from django_reliable_jobs import exceptions
from django_reliable_jobs.engine.results import JobResult, PastAttempt
from django_reliable_jobs.models import Attempt, Job
from django_reliable_jobs.tasks_framework import Task, TaskError, TaskResult, TaskResultStatus

AnyTask = TypeVar("AnyTask", bound="Task[..., Any]")

# What waits, for whatever, is READY; what ended without success is FAILED.
STATUSES: dict[str, TaskResultStatus] = {
    Job.Status.SCHEDULED: TaskResultStatus.READY,
    Job.Status.READY: TaskResultStatus.READY,
    Job.Status.WAITING: TaskResultStatus.READY,
    Job.Status.RUNNING: TaskResultStatus.RUNNING,
    Job.Status.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    Job.Status.DEAD: TaskResultStatus.FAILED,
    Job.Status.CANCELLED: TaskResultStatus.FAILED,
}

# Attempts that count as errors, and what stands for one that ended without an exception of the task's own. A snooze is
# none, and a worker that stopped is one only if the job ended with it.
_STAND_INS = {
    Attempt.Outcome.FAILED: exceptions.JobFailed,
    Attempt.Outcome.LOST: exceptions.LeaseLost,
    Attempt.Outcome.INTERRUPTED: exceptions.Stopping,
    Attempt.Outcome.CANCELLED: exceptions.Cancel,
}
_OF_THE_TASK = (Attempt.Outcome.FAILED, Attempt.Outcome.CANCELLED)  # what they name was raised, and can be imported
_HAS_A_WORKER = (Job.Status.RUNNING, Job.Status.SUCCEEDED)  # a success leaves no attempt, and none has ended yet


def result_of_new(job: Job, task: Task[..., Any]) -> TaskResult[..., Any]:
    """Return the result of a job that was just inserted."""
    return TaskResult(
        task=task,
        id=str(job.pk),
        status=STATUSES[job.status],
        enqueued_at=job.created_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=job.args,
        kwargs=job.kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )


def result_of(job: JobResult, declared: Task[..., Any], backend: str) -> TaskResult[..., Any]:
    """Return the result of a stored job of a declared Task, enqueued through the backend of this alias."""
    worker_ids = [attempt.worker for attempt in job.attempts]
    if job.status in _HAS_A_WORKER and job.worker is not None:
        worker_ids.append(job.worker)
    result: TaskResult[..., Any] = TaskResult(
        task=as_enqueued(
            declared,
            backend=backend,
            queue_name=job.queue_name,
            priority=job.priority,
            run_after=None if job.run_after == job.created_at else job.run_after,
        ),
        id=str(job.id),
        status=STATUSES[job.status],
        enqueued_at=job.created_at,
        started_at=job.first_started_at if worker_ids else None,
        finished_at=job.finished_at,
        last_attempted_at=job.started_at if worker_ids else None,
        args=job.args,
        kwargs=job.kwargs,
        backend=backend,
        errors=errors_of(job),
        worker_ids=[worker[:64] for worker in worker_ids],
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def errors_of(job: JobResult) -> list[TaskError]:
    """Return the errors of a job's attempts, oldest first; a job that failed has one, whatever ended it."""
    has_failed = STATUSES[job.status] == TaskResultStatus.FAILED
    counts = [each for each in _STAND_INS if has_failed or each != Attempt.Outcome.INTERRUPTED]
    errors = [_error_of(each) for each in job.attempts if each.outcome in counts]
    if not errors and has_failed:
        stand_in = exceptions.Cancel if job.status == Job.Status.CANCELLED else exceptions.JobFailed
        errors.append(TaskError(exception_class_path=_path(stand_in), traceback=f"{job.reason or job.status}\n"))
    return errors


def error_from(error_class: str, traceback: str) -> TaskError:
    """Return a stored error; classes of Python itself are stored without their module."""
    path = error_class if "." in error_class else f"builtins.{error_class}"
    return TaskError(exception_class_path=path, traceback=traceback)


def _error_of(attempt: PastAttempt) -> TaskError:
    if attempt.error_class and attempt.outcome in _OF_THE_TASK:
        return error_from(attempt.error_class, attempt.traceback)
    stand_in = _STAND_INS[Attempt.Outcome(attempt.outcome)]
    return TaskError(exception_class_path=_path(stand_in), traceback=f"{attempt.error_message}\n")


def _path(exception: type[BaseException]) -> str:
    return f"{exception.__module__}.{exception.__qualname__}"


def as_enqueued(declared: AnyTask, **choices: Any) -> AnyTask:
    """Return the Task with the choices of a row, which `using()` would check against the settings of today."""
    task: AnyTask = object.__new__(type(declared))
    for field in fields(declared):
        object.__setattr__(task, field.name, choices.get(field.name, getattr(declared, field.name)))
    return task
