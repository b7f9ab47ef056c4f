"""Who may rescue: a process that has reached the database, without a break, for a whole lease."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, InternalError, OperationalError

from django_reliable_jobs.conf import settings
from django_reliable_jobs.processes import housekeeping as module
from django_reliable_jobs.processes.heartbeat import Heartbeat
from django_reliable_jobs.processes.housekeeping import Housekeeping


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The monotonic clock of housekeeping, set by the test."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def housekeeping(clock: SimpleNamespace) -> Any:
    worker = SimpleNamespace(clock=clock)
    worker.heartbeat = Heartbeat(worker, on_death=lambda *_: None)  # type: ignore[arg-type]
    return Housekeeping(worker, on_death=lambda *_: None)  # type: ignore[arg-type]


def reach(housekeeping: Any, since: float, until: float) -> list[bool]:
    """Reach the database each sixth of a lease; moments are in leases."""
    answers = []
    for step in range(round((until - since) * 6) + 1):
        housekeeping._worker.clock.now = (since + step / 6) * settings.LEASE_SECONDS
        answers.append(housekeeping._may_rescue())
    return answers


def test_a_process_that_has_just_started_waits_for_a_lease(housekeeping: Any) -> None:
    assert reach(housekeeping, 10, 12) == [False] * 6 + [True] * 7


def test_after_a_gap_in_which_leases_run_out_it_waits_anew(housekeeping: Any) -> None:
    reach(housekeeping, 10, 12)
    assert reach(housekeeping, 12.5, 12.5) == [True], "in so short a time none does"
    assert reach(housekeeping, 13.25, 14.5) == [False] * 6 + [True] * 3


def test_a_server_that_only_answers_reads_is_a_break_which_the_heartbeat_notices(housekeeping: Any) -> None:
    reach(housekeeping, 10, 12)
    housekeeping._worker.heartbeat._failed_at = 12.4 * settings.LEASE_SECONDS
    assert reach(housekeeping, 12.5, 14) == [False] * 6 + [True] * 4


@pytest.mark.parametrize(
    ("error", "is_break"),
    [(OperationalError, True), (InternalError, True), (IntegrityError, False)],
    ids=["no answer", "read-only", "a row"],
)
def test_an_error_that_is_not_of_a_row_is_a_break(
    housekeeping: Any, error: type[DatabaseError], is_break: bool
) -> None:
    def fail() -> float:
        housekeeping._stop.set()
        raise error("it")

    reach(housekeeping, 0, 2)
    housekeeping._turn = fail
    housekeeping._run()
    assert housekeeping.failed_since(1.0) is is_break
