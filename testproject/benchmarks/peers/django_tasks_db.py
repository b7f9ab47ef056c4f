"""django-tasks-db: Django's own Tasks with rows as their store; one job at a time in a process, no bulk interface."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import django
from django.conf import settings

_url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    SECRET_KEY="only-for-a-benchmark-on-your-own-machine",  # noqa: S106
    USE_TZ=True,
    INSTALLED_APPS=["django.contrib.contenttypes", "django_tasks_db"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _url.path[1:],
            "HOST": _url.hostname,
            "PORT": _url.port,
            "USER": _url.username,
            "CONN_MAX_AGE": None,
        }
    },
    LOGGING={"version": 1, "disable_existing_loggers": True},
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402

from testproject.benchmarks.peers.django_tasks_db_tasks import noop, stamp  # noqa: E402
from testproject.benchmarks.peers.driver import arguments, drive, paced, timed, timed_chunks  # noqa: E402


def setup() -> None:
    """Make the tables."""
    call_command("migrate", verbosity=0)


def enqueue(seconds: float) -> dict[str, float]:
    """Enqueue one per transaction."""
    return timed(lambda number: noop.enqueue(**arguments(number)), seconds)


def bulk(jobs: int) -> dict[str, float]:
    """Enqueue a thousand in a transaction, one after another."""

    def enqueue_all(numbers: range) -> None:
        with transaction.atomic():
            for number in numbers:
                noop.enqueue(**arguments(number))

    return timed_chunks(enqueue_all, jobs, 1000)


def worker(concurrency: int) -> None:
    """Run jobs, one at a time."""
    call_command("db_worker", interval=1.0, verbosity=0, reload=False, startup_delay=False)


def latency(jobs: int, gap: float) -> None:
    """Enqueue at a slow pace."""
    paced(lambda number: stamp.enqueue(**arguments(number)), jobs, gap)


if __name__ == "__main__":
    drive(setup, enqueue, bulk, worker, latency)
