"""Tasks with schedules, declared anew by each test that wants some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_reliable_jobs import declared_schedules, scheduled
from django_reliable_jobs.recurrence import Recurrence
from tests import tasks


@contextmanager
def only_declared(*declarations: tuple[str, Recurrence, dict[str, Any]]) -> Iterator[None]:
    """Let these be the schedules that the code declares, all of `tests.tasks.effect`: (name, recurrence, options)."""
    before = dict(declared_schedules._declared)
    declared_schedules._declared.clear()
    try:
        for name, recurrence, options in declarations:
            scheduled(recurrence, name=name, **{"kwargs": {"name": name}, **options})(tasks.effect)
        yield
    finally:
        declared_schedules._declared.clear()
        declared_schedules._declared.update(before)
