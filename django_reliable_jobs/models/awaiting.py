"""Waiting for the end of a job: two methods of `Job`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from django_reliable_jobs.exceptions import JobFailed
from django_reliable_jobs.sync_only import refuse_on_event_loop

if TYPE_CHECKING:
    from django_reliable_jobs.models.job import Job


def wait(self: Job, timeout: float | timedelta | None = None) -> Any:
    """Wait until the job has ended and return its result; for scripts and tests.

    Raises JobFailed if it ended without success, TimeoutError after `timeout` (seconds or timedelta). Inside a
    transaction the job can't be seen by a worker yet, so that waiting there raises RuntimeError.
    """
    refuse_on_event_loop("job.wait()", "`await job.await_result(…)`")
    _refuse_in_transaction(self)
    for pause in _pauses(self, timeout):
        self.refresh_from_db()
        if self.has_ended:
            break
        time.sleep(pause)
    return _outcome(self)


async def await_result(self: Job, timeout: float | timedelta | None = None) -> Any:
    """Do what `wait` does, from a coroutine: the event loop goes on meanwhile."""
    await sync_to_async(_refuse_in_transaction)(self)
    for pause in _pauses(self, timeout):
        await self.arefresh_from_db()
        if self.has_ended:
            break
        await asyncio.sleep(pause)
    return _outcome(self)


def _refuse_in_transaction(job: Job) -> None:
    from django.db import connections

    if connections[job._state.db or "default"].in_atomic_block:
        raise RuntimeError(
            "waiting for a job inside a transaction would last for ever: no worker sees the job before COMMIT"
        )


def _pauses(job: Job, timeout: float | timedelta | None) -> Iterator[float]:
    """Yield the seconds to wait after each look; raise TimeoutError when it has been looked for long enough."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    deadline = None if seconds is None else time.monotonic() + seconds
    pause = 0.005
    while True:
        yield pause
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"job {job.pk} of task {job.task} is still {job.status} after {seconds} s")
        pause = min(pause * 1.5, 0.25)


def _outcome(job: Job) -> Any:
    if job.status != job.Status.SUCCEEDED:
        raise JobFailed(job)
    return job.result
