"""Tasks that no worker should have to run."""

from __future__ import annotations

import contextvars
import ctypes
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import connection, connections, transaction

from django_reliable_jobs import task
from tests.interrupted_tasks import at_once, stand_at_gate
from tests.tasks import leave_effect

tint: contextvars.ContextVar[str] = contextvars.ContextVar("tint", default="none")


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _allocate() -> None:
    # So that the machine survives: what the process has now, and a little. The limit stays, as a container's would.
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 200_000_000, resource.RLIM_INFINITY))
    hoard: list[Any] = []
    size = 1 << 24
    while True:
        try:
            hoard.append(bytearray(size))
        except MemoryError:
            if size < 64:
                raise
            size //= 2


def _segfault() -> None:
    ctypes.string_at(0)


def _raise(error: BaseException) -> None:
    raise error


def _close_connection() -> None:
    connection.close()
    leave_effect("after close")


def _close_all() -> None:
    with transaction.atomic():
        leave_effect("lost with its connection")
        connections.close_all()


def _leave_atomic_open() -> None:
    transaction.atomic().__enter__()
    leave_effect("left open")


def _leave_raw_transaction_open() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    leave_effect("left open")


def _turn_autocommit_off() -> None:
    transaction.set_autocommit(False)
    leave_effect("left open")


def _leave_thread() -> None:
    def go_on() -> None:
        while True:
            time.sleep(0.1)

    threading.Thread(target=go_on, name="left behind").start()


def _fail_after_commit() -> None:
    def fail() -> None:
        raise ValueError("too late")

    transaction.on_commit(fail)


def _fork() -> None:
    os.fork()  # and the child comes back too


def _change_context() -> None:
    tint.set("red")


def _end_own_session() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def _break_transaction() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        try:
            cursor.execute("SELECT 1 / 0")
        except Exception:
            cursor.execute("SELECT 1")


HOSTILE: dict[str, Callable[[], Any]] = {
    "allocates": _allocate,
    "os._exit": lambda: os._exit(0),
    "SystemExit": lambda: _raise(SystemExit(3)),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "closes the connection": _close_connection,
    "closes all connections": _close_all,
    "leaves a transaction open": _leave_atomic_open,
    "leaves a raw transaction open": _leave_raw_transaction_open,
    "turns autocommit off": _turn_autocommit_off,
    "leaves a thread": _leave_thread,
    "returns no JSON": lambda: {"a set": {1}},
    "returns a generator": lambda: (number for number in range(3)),
    "returns NaN": lambda: float("nan"),
    "returns too much": lambda: "x" * 300_000,
    "raises the unspeakable": lambda: _raise(_Unspeakable()),
    "raises NUL": lambda: _raise(ValueError("a\0b \ud800")),
    "raises a novel": lambda: _raise(ValueError("word " * 100_000)),
    "segfault": _segfault,
    "changes the context": _change_context,
    "ends its session": _end_own_session,
    "breaks its transaction": _break_transaction,
    "fails after its commit": _fail_after_commit,
    "forks": _fork,
    "stops its worker": lambda: os.kill(os.getpid(), signal.SIGTERM),
}


@task(max_attempts=2, backoff=at_once)
def hostile(how: str) -> Any:
    return HOSTILE[how]()


@task(max_attempts=5)
def poison(how: str, folder: str) -> None:
    """Take the process along, in the first attempt when the gate opens."""
    stand_at_gate(folder, how)
    if how == "loop in C":
        re.match(r"(a+)+$", "a" * 64 + "b")  # holds the interpreter for years
    HOSTILE[how]()


@task(max_attempts=1, atomic=True)
def hostile_atomic(how: str) -> Any:
    leave_effect(how)
    return HOSTILE[how]()


@task(max_attempts=1)
async def hostile_async(how: str) -> Any:
    return HOSTILE[how]()


@task()
def tint_seen() -> str:
    return tint.get()
