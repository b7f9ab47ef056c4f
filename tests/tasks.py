"""The tasks that the tests run, in their own process and in workers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from django_reliable_jobs import Cancel, Fail, JobContext, Retry, Snooze, current_job, exponential, signals, task
from django_reliable_jobs.models import Job
from tests.models import Effect


def leave_effect(name: str) -> None:
    job = current_job()
    Effect.objects.create(
        name=name, job_id=job.id, attempt=job.attempt, pid=os.getpid(), thread=threading.current_thread().name
    )


@task()
def effect(name: str) -> str:
    leave_effect(name)
    return name


@task()
def nothing(*args: Any, **kwargs: Any) -> None:
    pass


@task(unique="key", max_attempts=3)
def unique(key: str, value: int = 0) -> None:
    leave_effect(f"{key}={value}")


@task(unique="key", unique_until="start", backoff=exponential(first=0.2, jitter=0), max_attempts=2)
def unique_until_start(key: str, fail: bool = False) -> None:
    leave_effect(key)
    if fail:
        raise ValueError(key)


@task(max_attempts=3, backoff=exponential(first=10, factor=2, jitter=0))
def fails(message: str = "it broke") -> None:
    raise ValueError(message)


@task(max_attempts=1)
def once(name: str = "once") -> None:
    leave_effect(name)


@task(max_attempts=3, backoff=exponential(first=0, maximum=0, jitter=0))
def fails_until(attempt: int) -> int:
    job = current_job()
    leave_effect("tried")
    if job.attempt < attempt:
        raise ConnectionError(f"attempt {job.attempt}")
    return job.attempt


@task(max_attempts=2)
def ends_by(ending: str, after: float | None = None) -> None:
    match ending:
        case "retry":
            raise Retry(after, "asked to retry")
        case "snooze":
            raise Snooze(after or 0, "asked to snooze")
        case "cancel":
            raise Cancel("asked to cancel")
        case "fail":
            raise Fail("asked to fail")


@task()
def slow(seconds: float, name: str = "slow") -> None:
    """Leave an effect at the begin and at the end; ends early at nothing."""
    leave_effect(f"{name} begins")
    time.sleep(seconds)
    leave_effect(f"{name} ends")


@task()
def until_stopping(name: str = "loop", limit: float = 60) -> None:
    """Run until the worker stops or the job is cancelled."""
    leave_effect(f"{name} begins")
    job, deadline = current_job(), time.monotonic() + limit
    while time.monotonic() < deadline:
        job.raise_if_stopping()
        time.sleep(0.01)
    leave_effect(f"{name} gave up")


@task(max_attempts=1)
def once_slow(seconds: float) -> None:
    leave_effect("once")
    time.sleep(seconds)


@task()
async def asynchronous(name: str) -> int:
    """Return what tells its event loop from any other."""
    await Effect.objects.acreate(name=name, job_id=current_job().id, pid=os.getpid())
    return id(asyncio.get_running_loop())


@task(takes_context=True)
def with_context(context: JobContext, name: str) -> dict[str, Any]:
    return {"name": name, "attempt": context.attempt, "id": context.id, "key": context.idempotency_key("x")}


@task()
def bury(job_id: int) -> None:
    leave_effect(f"buried {job_id}")


@task(max_attempts=1, on_dead=bury)
def dies_and_is_buried() -> None:
    raise ValueError("dead")


@task()
def slow_once(seconds: float) -> None:
    """Slow in its first attempt only."""
    leave_effect("slow once")
    if current_job().claims == 1:
        time.sleep(seconds)


@task()
def dies_of_a_signal() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


@task()
def grows(megabytes: int, seconds: float = 0.5) -> None:
    ballast = bytearray(os.urandom(1024)) * 1024 * megabytes
    time.sleep(seconds)
    del ballast


@task(retry_on=(ConnectionError,))
def retries_only_lost_connections() -> None:
    raise ValueError("no")


class Bad(Exception):
    pass


Bad.__module__ = "a\0b"


@task(max_attempts=1)
def raises_a_class_with_a_bad_name() -> None:
    raise Bad


@task(max_attempts=1)
def snoozes_for_ever() -> None:
    raise Snooze(datetime.max.replace(tzinfo=UTC))


@task(expires=60, max_attempts=2, backoff=exponential(first=3600, jitter=0))
def expires_between_attempts() -> int:
    if current_job().attempt == 1:
        raise ValueError("once")
    return current_job().attempt


@task(alert_after=3600)
def watched(fail: bool = False) -> None:
    if fail:
        raise ValueError("it broke")


@task(atomic=True)
def atomic_nothing() -> None:
    pass


@task()
def replaced_while_it_runs() -> None:
    """In its first claim, be taken back by somebody."""
    job = current_job()
    if job.claims == 1:
        Job.objects.filter(pk=job.id).update(status="READY", attempt=0, token=1)


@task()
def blocks_the_worker(seconds: float) -> None:
    """Let the worker's own thread sleep when the success of this job is written."""

    def sleep(**_: Any) -> None:
        time.sleep(seconds)

    signals.succeeded.connect(sleep, weak=False)


@task(max_attempts=1)
def returns_an_object() -> object:
    return object()


@task(max_attempts=1)
def leaves() -> None:
    raise SystemExit("it left")


@task()
def echo(*args: Any) -> list[Any]:
    return list(args)


@task(max_attempts=1)
def snoozes_a_minute() -> None:
    raise Snooze(60)


@task()
def enqueues_effect(name: str) -> None:
    effect.enqueue(name)


@task()
def enqueues_itself() -> None:
    enqueues_itself.enqueue()


@task(max_attempts=1)
def breaks_its_transaction() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


@task(sensitive="more")
def hides_more(name: str, **more: Any) -> None:
    pass


@task(sensitive=["card", "codes"])
def pays(amount: int, card: str, *codes: str, note: str = "", **more: Any) -> None:
    pass


@task()
def logs_a_line() -> None:
    logging.getLogger("shop.orders").warning("the order was shipped", extra={"order": 7})


@task(max_attempts=1)
def once_fails() -> None:
    raise ValueError("it broke")


@task(admin_enqueue=True, sensitive="secret", unique="name")
def by_hand(
    name: str, times: int = 1, is_loud: bool = False, tags: list[str] | None = None, *, secret: str = "", **more: Any
) -> dict[str, Any]:
    """Say a name so many times."""
    return {"name": name, "times": times, "is_loud": is_loud, "tags": tags, "more": more}
