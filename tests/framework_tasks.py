"""Tasks of Django's own framework, as a third-party app would declare them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

from django_reliable_jobs import Cancel, Retry, Snooze, current_job
from django_reliable_jobs.tasks_framework import TaskContext
from tests.models import Effect

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task


def leave_effect(name: str) -> None:
    Effect.objects.create(name=name, job_id=current_job().id, thread=threading.current_thread().name)


@task
def nothing(*args: Any, **kwargs: Any) -> None:
    return None


@task()
async def nothing_async(*args: Any, **kwargs: Any) -> None:
    await asyncio.sleep(0)


@task()
def answer() -> int:
    return 42


@task(priority=7, queue_name="mail")
def effect(name: str) -> str:
    leave_effect(name)
    return name


@task()
async def effect_async(name: str) -> list[str]:
    await Effect.objects.acreate(name=name, job_id=current_job().id)
    return [name]


@task()
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task()
def returns(kind: str) -> Any:
    return {"tuple": (1, (2,)), "bytes": b"abc", "keys": {1: "one"}, "object": object(), "nan": float("nan")}[kind]


@task()
def fails(message: str = "it broke") -> None:
    raise ValueError(message)


@task()
def fails_with_an_error_in_an_error() -> None:
    raise ValueError(ValueError("it broke"))


@task()
def exits() -> None:
    raise SystemExit("it left")


@task()
def is_interrupted() -> None:
    raise KeyboardInterrupt("somebody pressed Ctrl-C")


@task(takes_context=True)
def own_id(context: TaskContext[..., Any]) -> list[Any]:
    return [context.task_result.id, context.attempt, context.task_result.status]


@task(takes_context=True)
async def own_id_async(context: TaskContext[..., Any]) -> list[Any]:
    return [context.task_result.id, context.attempt, context.task_result.status]


@task(takes_context=True, backend="patient")
def fails_until(context: TaskContext[..., Any], attempt: int) -> list[Any]:
    if context.attempt < attempt:
        raise ConnectionError(f"attempt {context.attempt}")
    return [context.attempt, len(context.task_result.errors)]


@task(backend="patient")
def unique(key: str, value: int = 0) -> None:
    leave_effect(f"{key}={value}")


@task(backend="patient")
def ends_by(ending: str) -> None:
    match ending:
        case "retry":
            raise Retry(60)
        case "snooze":
            raise Snooze(60)
        case "cancel":
            raise Cancel("no longer wanted")


@task()
def dies_of_a_signal() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
