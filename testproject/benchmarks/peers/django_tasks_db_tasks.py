"""The measured tasks for django-tasks-db, which imports them by their path."""

from __future__ import annotations

from django.tasks import task

from testproject.benchmarks.peers import marks


@task()
def noop(number: int, note: str) -> None:
    """Do nothing but count that it ran."""
    marks.ran()


@task()
def stamp(number: int, note: str) -> None:
    """Note the moment of the start."""
    marks.stamp(number)
