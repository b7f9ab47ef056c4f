"""What all exercises need: a schema of their own, people with connections of their own, a worker, a timeline."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection

SCHEMA = "exercise"
PATIENCE_SECONDS = 120


class Timeline:
    """Who did what, in the order in which it happened, with the seconds since the beginning of a scene."""

    def __init__(self, write: Callable[[str], Any]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._began_at = time.monotonic()

    def scene(self, title: str) -> None:
        """Begin a scene: its clock stands at zero."""
        self._write(f"\n{title}")
        self._began_at = time.monotonic()

    def say(self, who: str, what: str) -> None:
        """Add a line."""
        with self._lock:
            self._write(f"  {time.monotonic() - self._began_at:6.2f} s  {who:<9} {what}")

    def draw(self, label: str, line: str) -> None:
        """Add a line of a picture."""
        self._write(f"  {label:<8}{line}")

    def conclude(self, text: str) -> None:
        """Say what is to be seen."""
        self._write(f"  => {text}")


def expect(is_so: bool, what: str) -> None:
    """Fail if an exercise does not show what it should."""
    if not is_so:
        raise CommandError(f"This should have been so, and is not: {what}.")


@contextmanager
def schema(*statements: str) -> Iterator[None]:
    """Make a fresh schema with tables, and drop it at the end."""
    execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}", *statements)
    try:
        yield
    finally:
        execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def execute(*statements: str) -> None:
    """Execute statements, each a transaction of its own."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def query(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall()) if cursor.description else []


def value(sql: str, *parameters: Any) -> Any:
    """Return the only value of a query, or None."""
    rows = query(sql, *parameters)
    return rows[0][0] if rows else None


def together(*acts: Callable[[], Any]) -> list[Any]:
    """Let several people act at once, each in a thread and a connection of its own; return what they return."""

    def perform(act: Callable[[], Any]) -> Any:
        try:
            return act()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as people:
        return list(people.map(perform, acts))


@contextmanager
def manage(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of the project beside this one, on the same database; it is stopped cleanly at the end."""
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process
            process.terminate()
            process.wait(timeout=30)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def wait_until_there(*, with_scheduler: bool = False) -> None:
    """Return when the worker has its lease, and, if one is wanted, a scheduler leads."""
    workers = "SELECT count(*) FROM django_reliable_jobs_worker WHERE 'exercise' = ANY(queues) AND lost_at IS NULL"
    wait_for(lambda: value(workers), "the worker")
    leads = "SELECT count(*) FROM django_reliable_jobs_leader WHERE expires_at > clock_timestamp()"
    wait_for(lambda: not with_scheduler or value(leads), "a scheduler to lead")


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of `condition`; fail after two minutes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise CommandError(f"Waited {PATIENCE_SECONDS} s in vain for {what}.")
        time.sleep(0.02)
    return found
