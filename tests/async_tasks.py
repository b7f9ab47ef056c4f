"""Tasks that are coroutines."""

from __future__ import annotations

from typing import Any

from django_reliable_jobs import current_job, task
from tests.models import Effect


@task()
async def saves() -> list[Any]:
    context = current_job()
    first = await context.aload_checkpoint("a", "nothing yet")
    await context.asave_checkpoint("a", {"n": 1})

    def write(name: str) -> str:
        Effect.objects.create(name=name, job_id=context.id)
        context.save_checkpoint("b", 2)
        return "written"

    return [first, await context.aload_checkpoint("a"), await context.afenced(write, name="fenced")]


@task(max_attempts=1)
async def calls(method: str) -> None:
    context = current_job()
    match method:
        case "save_checkpoint":
            context.save_checkpoint("a", 1)
        case "load_checkpoint":
            context.load_checkpoint("a")
        case "fenced":
            with context.fenced():
                pass


@task(max_attempts=1)
async def fails_fenced() -> None:
    def write() -> None:
        Effect.objects.create(name="never")
        raise ValueError("too late")

    await current_job().afenced(write)


@task()
async def enqueues(more: int) -> None:
    if more:
        await enqueues.aenqueue(more - 1)
