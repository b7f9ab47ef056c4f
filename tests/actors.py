"""People on the stage of a race test: each acts in a thread and a connection of its own, one step at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connection, transaction

T = TypeVar("T")


class Actor:
    """`does` a step and waits for it; `starts` a step that may block on a lock, and returns its Future."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._atomic: Any = None
        self.backend_pid = self.does(self._connect)

    def does(self, step: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return self.starts(step, *args, **kwargs).result(timeout=60)

    def starts(self, step: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
        return self._executor.submit(step, *args, **kwargs)

    def begins(self) -> None:
        """Open a transaction that stays open between steps."""
        self.does(self._begin)

    def commits(self) -> None:
        self.does(self._end, None)

    def rolls_back(self) -> None:
        self.does(self._end, RuntimeError("rolled back"))

    def leaves(self) -> None:
        self.does(lambda: connection.close())
        self._executor.shutdown(wait=True)

    def _connect(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    def _begin(self) -> None:
        self._atomic = transaction.atomic()
        self._atomic.__enter__()

    def _end(self, error: Exception | None) -> None:
        self._atomic.__exit__(type(error) if error else None, error, None)


@contextmanager
def on_stage(*names: str) -> Iterator[list[Actor]]:
    actors = [Actor(name) for name in names]
    try:
        yield actors
    except BaseException:
        _cut_off(actors)
        raise
    finally:
        for actor in actors:
            actor.leaves()


def _cut_off(actors: list[Actor]) -> None:
    """End their sessions: one that still waits for a lock would keep a failed test from ending."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(unnest(%s::int[]))", [[actor.backend_pid for actor in actors]])


def wait_until_blocked(actor: Actor, timeout: float = 60) -> None:
    """Return once the actor's statement waits for a lock that somebody else holds; fail if it never does."""

    def is_blocked() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT cardinality(pg_blocking_pids(%s))", [actor.backend_pid])
            return bool(cursor.fetchone()[0])

    wait_for(is_blocked, timeout=timeout, what=f"{actor.name} to wait for a lock")


def terminate(pid: int) -> None:
    """End a session, and wait until it is gone."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


def somebody_waits_for_a_lock() -> bool:
    """Whether a session of the test's database does; others may use the server at the same time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_locks JOIN pg_stat_activity activity USING (pid)"
            " WHERE NOT granted AND activity.datname = current_database()"
        )
        return cursor.fetchone() is not None


def wait_for(condition: Callable[[], T], *, timeout: float = 60, what: str = "the condition") -> T:
    """Return the first true value of `condition`, asked again and again; fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout} s in vain for {what}"
        pause.wait(0.01)
    return value
