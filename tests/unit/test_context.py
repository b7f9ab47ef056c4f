"""What a job sees of itself."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from django_reliable_jobs.context import JobContext

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class NoPort:
    """Nothing is written here."""

    def fenced(self) -> Any:
        return nullcontext()


def a_context(**changes: Any) -> JobContext:
    given = {"id": 1, "attempt": 1, "claims": 1, "run": 1, **changes}
    return JobContext(task_name="t", max_attempts=3, queue_name="default", using="default", _port=NoPort(), **given)  # type: ignore[arg-type]


def key(name: str = "charge", **changes: Any) -> str:
    return a_context(**changes).idempotency_key(name)


def test_every_attempt_of_a_run_has_the_same_key() -> None:
    assert key() == key(attempt=2, claims=7)


def test_another_name_job_or_run_has_another_key() -> None:
    keys = {key(), key("refund"), key(id=2), key(run=2), key(id=11, run=1), key(id=1, run=11)}
    assert len(keys) == 6


def test_a_slot_has_one_key_whatever_job_serves_it() -> None:
    slot = {"schedule": 5, "slot": NOON}
    assert key(**slot) == key(id=2, **slot)
    others = {key(schedule=5, slot=NOON + timedelta(seconds=1)), key(schedule=6, slot=NOON), key(run=2, **slot), key()}
    assert len(others) == 4
    assert key(**slot) not in others


def test_the_key_of_a_slot_is_that_of_its_instant_in_any_time_zone() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=2)))
    assert key(schedule=5, slot=there) == key(schedule=5, slot=NOON)


def test_progress_is_kept_in_memory() -> None:
    context = a_context()
    context.progress(1, 10, "begins")
    context.progress(2)
    assert context._progress.said == (2, 10, "begins", 0)
