"""Steps, and undos of steps, that take their time when they are called first."""

from __future__ import annotations

import time
from typing import Any

from django.db import connection

from django_reliable_jobs import exponential, start_child, step, task, wait_for, wait_for_event
from tests.models import Effect
from tests.tasks import leave_effect

AT_ONCE = exponential(first=0, maximum=0, jitter=0)


def is_first_call(name: str) -> bool:
    leave_effect(name)
    return Effect.objects.filter(name=name).count() == 1


def make(name: str) -> str:
    if is_first_call(f"begin {name}"):
        time.sleep(1.5)
    leave_effect(f"made {name}")
    return name


def unmake(made: str, name: str) -> None:
    """Hang in the first try, where a query can be cancelled."""
    if is_first_call(f"begin to unmake {name}"):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")
    leave_effect(f"unmade {name}")


@task(max_attempts=1)
def makes_two() -> list[str]:
    return [step("make a", make, "a"), step("make b", make, "b")]


@task(max_attempts=1, backoff=AT_ONCE)
def makes_one_and_waits() -> None:
    step("make a", make, "a", undo=unmake)
    wait_for_event("never")


@task(timeout=3, backoff=AT_ONCE)
def makes_one_in_time_and_waits() -> None:
    step("make a", make, "a", undo=unmake)
    wait_for_event("never")


@task()
def makes_two_by_a_child() -> Any:
    return wait_for(start_child(makes_two))
