"""Tasks of the exercises. They write to tables that are there only while an exercise runs."""

from __future__ import annotations

import os
import signal
import time

from django_reliable_jobs import current_job, task
from testproject.exercises.stage import query

ONCE = "INSERT INTO exercise.invoice (night) VALUES (%s) ON CONFLICT DO NOTHING RETURNING night"


@task(queue_name="exercise")
def careless(night: str, dies: bool = False) -> str:
    """Write a letter, whoever else has."""
    query("INSERT INTO exercise.letter (night) VALUES (%s)", night)
    _die_once(dies)
    return "wrote a letter"


@task(queue_name="exercise")
def careful(night: str, dies: bool = False) -> str:
    """Write the invoice of the night, unless it is there: the key decides."""
    written = query(ONCE, night)
    _die_once(dies)
    return "wrote the invoice" if written else "nothing to do: it is there"


def _die_once(dies: bool) -> None:
    """After the work, and before anybody knows of it: the worst moment."""
    if dies and current_job().claims == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@task(queue_name="exercise", max_attempts=1)
def takes_long(seconds: float) -> None:
    """Run for so long; end early when asked to."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        current_job().raise_if_stopping()
        time.sleep(0.02)
