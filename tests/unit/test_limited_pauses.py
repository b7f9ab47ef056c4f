"""How long a worker that looked at limits in vain waits before it looks again."""

from __future__ import annotations

import time

import pytest

from django_reliable_jobs.conf import settings
from django_reliable_jobs.processes.limited import FIRST_PAUSE, LimitedIntake


def pause_after(took: float, *, is_busy: bool, failures: int = 0, soonest: float | None = None) -> float:
    """The pause after a look that took so long."""
    intake = LimitedIntake.__new__(LimitedIntake)
    intake._failures, intake._soonest = failures, soonest
    intake._looked_at = time.monotonic() - took
    intake._put_off(is_busy=is_busy)
    assert intake._failures == failures + 1
    return intake._again_at - time.monotonic()


def test_it_doubles_up_to_the_poll() -> None:
    pauses = [pause_after(0.1, is_busy=False, failures=failures) for failures in range(7)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1, 1], abs=0.02)
    assert settings.POLL_SECONDS == 1 and FIRST_PAUSE == 0.05


def test_looks_in_vain_take_a_hundredth_of_the_time_while_ordinary_jobs_use_the_threads() -> None:
    assert pause_after(0.002, is_busy=True) == pytest.approx(0.2, abs=0.05)
    assert pause_after(0.03, is_busy=True) == pytest.approx(settings.POLL_SECONDS, abs=0.02)
    assert pause_after(0, is_busy=True) == pytest.approx(FIRST_PAUSE, abs=0.02)


def test_a_rate_tells_its_moment_to_who_started_the_last_job() -> None:
    assert pause_after(0.03, is_busy=True, soonest=0.3) == pytest.approx(0.3, abs=0.02)
    assert pause_after(0, is_busy=False, failures=1, soonest=0.02) == pytest.approx(0.1, abs=0.02)
