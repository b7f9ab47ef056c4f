"""This project's jobs of steps. Their worker is `manage.py runworker`."""

from __future__ import annotations

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402

from django_reliable_jobs import emit_event  # noqa: E402
from testproject.benchmarks.peers.driver import Stopwatch, drive  # noqa: E402
from testproject.benchmarks.step_tasks import parent as start_them  # noqa: E402
from testproject.benchmarks.step_tasks import parts, waits  # noqa: E402


def setup() -> None:
    """Make the tables."""
    call_command("migrate", verbosity=0)


def bulk(jobs: int) -> dict[str, float]:
    """Enqueue jobs of steps."""
    watch = Stopwatch()
    parts.enqueue_many([{"number": number} for number in range(jobs)])
    return watch.result(jobs)


def wait(jobs: int) -> dict[str, float]:
    """Enqueue jobs that come to wait for an event each."""
    watch = Stopwatch()
    waits.enqueue_many([{"number": number} for number in range(jobs)])
    return watch.result(jobs)


def parent(jobs: int, waits: int) -> dict[str, float]:
    """Enqueue a job that enqueues others."""
    watch = Stopwatch()
    start_them.enqueue(jobs, waits)
    return watch.result(1)


def emit(jobs: int) -> dict[str, float]:
    """Emit the events of so many jobs, in one transaction."""
    watch = Stopwatch()
    with transaction.atomic():
        for number in range(jobs):
            emit_event(f"benchmark:{number}", number)
    return watch.result(jobs)


if __name__ == "__main__":
    drive(setup, bulk, wait, parent, emit)
