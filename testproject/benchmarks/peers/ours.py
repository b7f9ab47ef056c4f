"""This project. Its worker is not started here: it is `manage.py runworker`."""

from __future__ import annotations

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402

from testproject.benchmarks.peers.admin_pages import admin_pages  # noqa: E402
from testproject.benchmarks.peers.admin_rows import admin_rows  # noqa: E402
from testproject.benchmarks.peers.batching import batches  # noqa: E402
from testproject.benchmarks.peers.claiming import claims  # noqa: E402
from testproject.benchmarks.peers.driver import Stopwatch, arguments, drive, paced, timed  # noqa: E402
from testproject.benchmarks.peers.ticking import next_runs, schedules, tick  # noqa: E402
from testproject.benchmarks.tasks import build_report, noop, send_password, stamp  # noqa: E402


def setup() -> None:
    """Make the tables."""
    call_command("migrate", verbosity=0)


def enqueue(seconds: float) -> dict[str, float]:
    """Enqueue outside a transaction: each is one of its own."""
    return timed(lambda number: noop.enqueue(**arguments(number)), seconds)


def bulk(jobs: int) -> dict[str, float]:
    """Enqueue all in one call, in the caller's transaction; its COMMIT counts."""
    calls = [arguments(number) for number in range(jobs)]
    connection.ensure_connection()
    watch = Stopwatch()
    with transaction.atomic():
        noop.enqueue_many(calls)
    return watch.result(jobs)


def latency(jobs: int, gap: float) -> None:
    """Enqueue at a slow pace."""
    paced(lambda number: stamp.enqueue(**arguments(number)), jobs, gap)


def passwords(jobs: int, gap: float) -> None:
    """Enqueue one-time passwords at a slow pace."""
    paced(lambda number: send_password.enqueue(**arguments(number)), jobs, gap)


def reports(jobs: int, seconds: float) -> None:
    """Enqueue reports that take so long."""
    build_report.enqueue_many([{"seconds": seconds}] * jobs)


ADMIN = (admin_rows, admin_pages)

if __name__ == "__main__":
    drive(setup, enqueue, bulk, latency, passwords, reports, claims, schedules, tick, next_runs, batches, *ADMIN)
