"""Tasks that are replaced, cut or interrupted at moments that a test chooses."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, transaction

from django_reliable_jobs import Retry, Snooze, current_job, exponential, task
from tests.models import Span
from tests.tasks import leave_effect

at_once = exponential(first=0, maximum=0, jitter=0)


def touch(folder: str, name: str, text: str = "") -> None:
    """Leave a word that no transaction can take back."""
    draft = Path(folder, f".{name}")
    draft.write_text(text)
    draft.rename(Path(folder, name))


def stand_at_gate(folder: str, name: str = "gate") -> None:
    """Say that the gate is reached, and wait until the test opens it."""
    touch(folder, f"{name}.reached")
    while not Path(folder, f"{name}.open").exists():
        time.sleep(0.005)


# --- replaced attempts


@task(backoff=at_once)
def write_after_gate(how: str, folder: str) -> str:
    """The first claim stands at the gate before it writes; the next ones write at once."""
    job = current_job()
    written_by = f"claim {job.claims}"
    if job.claims == 1:
        stand_at_gate(folder)
    try:
        match how:
            case "checkpoint":
                with transaction.atomic():
                    leave_effect(written_by)
                    job.save_checkpoint("writer", written_by)
            case "fenced":
                with job.fenced():
                    leave_effect(written_by)
    except BaseException as error:
        touch(folder, f"{written_by} caught", type(error).__name__)
        raise
    touch(folder, f"{written_by} done")
    return written_by


@task(backoff=at_once, atomic=True)
def write_atomically_after_gate(folder: str) -> str:
    """As above, in one transaction with the success of the job."""
    job = current_job()
    leave_effect(f"claim {job.claims}")
    if job.claims == 1:
        stand_at_gate(folder)
    touch(folder, f"claim {job.claims} done")
    return f"claim {job.claims}"


@task(backoff=at_once)
def stand_behind_fence(folder: str) -> str:
    """The first claim stands at the gate in a transaction that has taken the fence."""
    job = current_job()
    with transaction.atomic():
        leave_effect(f"claim {job.claims}")
        job.save_checkpoint("writer", f"claim {job.claims}")
        if job.claims == 1:
            stand_at_gate(folder)
    return f"claim {job.claims}"


@task(max_attempts=1)
def hold_fence_open(how: str, seconds: float) -> None:
    """Keep a transaction with a checkpoint open, by a statement that runs or with nothing to do."""
    with transaction.atomic():
        leave_effect(how)
        current_job().save_checkpoint("how", how)
        if how == "busy":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(%s)", [seconds])
        else:
            time.sleep(seconds)


# --- work that may be cut at any moment


@task(atomic=True, max_attempts=1000, backoff=at_once)
def atomic_effect(name: str, seconds: float = 0) -> str:
    leave_effect(name)
    time.sleep(seconds)
    return name


@task(max_attempts=1000, backoff=at_once)
def in_parts(name: str, parts: int = 3, seconds: float = 0) -> int:
    """Do each part once: its effect and the checkpoint commit together."""
    job = current_job()
    for part in range(job.load_checkpoint("done", 0), parts):
        with transaction.atomic():
            leave_effect(f"{name}, part {part}")
            job.save_checkpoint("done", part + 1)
        time.sleep(seconds)
    return parts


@task(max_attempts=1000, backoff=at_once)
def plain_effect(name: str, seconds: float = 0) -> None:
    leave_effect(name)
    time.sleep(seconds)


@task(atomic=True, max_attempts=3, backoff=at_once)
def atomic_after_gate(folder: str, name: str = "atomic") -> str:
    leave_effect(name)
    stand_at_gate(folder)
    return name


@task(max_attempts=3, backoff=at_once)
def after_gate(folder: str, name: str = "gate", ending: str = "success") -> str:
    """Wait at the gate without a look at anything else, then end as told."""
    leave_effect(name)
    stand_at_gate(folder, name)
    match ending:
        case "retry":
            raise Retry(0.2, "asked to retry")
        case "snooze":
            raise Snooze(0.2, "asked to snooze")
        case "failure":
            raise ValueError("failed")
    return name


@task(backoff=at_once, max_attempts=1000)
def span(seconds: float, stubborn: bool = False, later: float | None = None) -> None:
    """Record, by the database's clock, from when to when this attempt runs; a stubborn one looks at nothing else.

    `later` are the seconds of all claims but the first.
    """
    job = current_job()
    if job.claims > 1 and later is not None:
        seconds = later
    row = Span.objects.create(job_id=job.id, claim=job.claims, pid=os.getpid())
    deadline = time.monotonic() + seconds
    update = f"UPDATE tests_span SET seen_at = clock_timestamp() WHERE id = {row.pk}"
    with connection.cursor() as cursor:
        execute = connection.connection.execute if stubborn else cursor.execute
        while time.monotonic() < deadline:
            execute(update)
    Span.objects.filter(pk=row.pk).update(has_ended=True)


# --- tasks that outstay their timeout


@task(timeout=0.5, max_attempts=1)
def too_long(how: str, limit: float = 60) -> str:
    """Go on for much longer than the timeout allows."""
    leave_effect("begins")
    outstay(how, time.monotonic() + limit, limit)
    return how


def outstay(how: str, deadline: float, limit: float) -> None:
    match how:
        case "loop":
            while time.monotonic() < deadline:
                pass
        case "query":
            _sleep_in_query(limit)
        case "queries":
            while time.monotonic() < deadline:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
        case "swallow queries":
            while time.monotonic() < deadline:
                try:
                    _sleep_in_query(limit)
                except Exception:
                    leave_effect("swallowed")
        case "sleep in C":
            time.sleep(limit)
        case "hoard and sleep in C":
            hoard = bytearray(b"x") * 300_000_000
            time.sleep(limit + len(hoard) % 1)
        case "swallow everything":
            while time.monotonic() < deadline:
                try:
                    while time.monotonic() < deadline:
                        pass
                except BaseException:
                    continue
        case "looks":
            while time.monotonic() < deadline:
                current_job().raise_if_stopping()
                time.sleep(0.01)


@task(max_attempts=3)
def for_long(how: str, limit: float = 60) -> None:
    leave_effect("begins")
    outstay(how, time.monotonic() + limit, limit)


@task(max_attempts=3)
async def for_long_async(folder: str, limit: float = 60) -> None:
    await sync_to_async(leave_effect)("begins")
    await asyncio.sleep(limit)


@task(max_attempts=1)
def once_for(limit: float, how: str = "sleep in C") -> None:
    leave_effect("begins")
    outstay(how, time.monotonic() + limit, limit)


def _sleep_in_query(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])


@task(timeout=0.5, max_attempts=1)
async def too_long_async(how: str, folder: str, limit: float = 60) -> None:
    """The same on the event loop."""
    deadline = time.monotonic() + limit
    match how:
        case "sleep":
            try:
                await asyncio.sleep(limit)
            finally:
                touch(folder, "cleaned up")
        case "slow to clean up":
            try:
                await asyncio.sleep(limit)
            finally:
                await asyncio.sleep(1)
                touch(folder, "cleaned up")
        case "swallow":
            while time.monotonic() < deadline:
                try:
                    await asyncio.sleep(limit)
                except asyncio.CancelledError:
                    continue
        case "block":
            time.sleep(limit)
        case "query":
            await sync_to_async(_sleep_in_query)(limit)


@task(timeout=0.5, max_attempts=1)
def ends_after_timeout(folder: str) -> str:
    """Ignore the timeout until the gate opens, then return."""
    stand_at_gate(folder)
    return "made it"


@task(timeout=0.05, max_attempts=1, atomic=True)
def nearly_too_long_atomic(seconds: float) -> str:
    leave_effect("nearly")
    spin(seconds)
    return "in time"


@task(timeout=0.05, max_attempts=1)
def nearly_too_long(seconds: float, how: str) -> str:
    """Last about as long as it takes until an interruption arrives."""
    if how == "query":
        _sleep_in_query(seconds)
    elif how == "commits":
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with transaction.atomic():
                leave_effect("nearly")
    else:
        spin(seconds)
    return "in time"


def spin(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass


@task()
def queries_in_log() -> int:
    leave_effect("one query")
    return len(connection.queries_log)


@task(atomic=True, max_attempts=1)
def swallows_a_failure(how: str) -> str:
    """Go on after a statement that failed: in a block of its own, or in the transaction of the task."""
    leave_effect(how)
    try:
        match how:
            case "sql":
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1 / 0")
            case "orm":
                Span.objects.create(job_id=None, claim=1, pid=1)
            case "own block":
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute("SELECT 1 / 0")
    except DatabaseError:
        pass
    return how


@task(max_attempts=2)
def again_at(how: str, moment: str) -> None:
    """Ask for another run at a moment, as `how` says: retry or snooze."""
    raise {"retry": Retry, "snooze": Snooze}[how](datetime.fromisoformat(moment))
