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
