"""The measured tasks."""

from __future__ import annotations

import time

from django_reliable_jobs import task
from testproject.benchmarks import step_tasks  # noqa: F401 - its tasks
from testproject.benchmarks.peers import marks


@task(name="benchmark.noop")
def noop(number: int, note: str) -> None:
    """Do nothing but count that it ran."""
    marks.ran()


@task(name="benchmark.stamp")
def stamp(number: int, note: str) -> None:
    """Note the moment of the start."""
    marks.stamp(number)


@task(name="benchmark.nap")
def nap(seconds: float) -> None:
    """Keep a thread busy without work."""
    time.sleep(seconds)


@task(name="benchmark.password", queue_name="otp")
def send_password(number: int, note: str) -> None:
    """Note the moment of the start: somebody waits for it."""
    marks.stamp(number)


@task(name="benchmark.report", queue_name="reports")
def build_report(seconds: float) -> None:
    """Compute for so long, as far as a thread gets to."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
