from __future__ import annotations

import pytest

from django_reliable_jobs.processes import speed
from django_reliable_jobs.processes.speed import Speed


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(speed, "time", clock)
    return clock


def test_a_worker_that_has_done_nothing_has_no_speed(clock: Clock) -> None:
    assert Speed().in_seconds(1) == 0


def test_it_is_the_jobs_that_ended_in_the_time_that_passed(clock: Clock) -> None:
    it = Speed()
    clock.now += 0.05
    it.note(100)
    assert it.in_seconds(0.04) == 80


def test_one_job_that_ends_at_once_is_not_a_multitude(clock: Clock) -> None:
    it = Speed()
    clock.now += 0.000_01
    it.note(1)
    assert it.in_seconds(0.04) == 4


@pytest.mark.parametrize(("jobs", "seconds"), [(300, 0.01), (1, 0.1), (8, 0.03)])
def test_it_settles_at_a_steady_pace(clock: Clock, jobs: int, seconds: float) -> None:
    it = Speed()
    for _ in range(100):
        clock.now += seconds
        it.note(jobs)
    assert it.in_seconds(10) == pytest.approx(10 * jobs / seconds, rel=0.01)


def test_it_forgets_fast_jobs_soon_after_slow_ones_have_begun(clock: Clock) -> None:
    it = Speed()
    for _ in range(100):
        clock.now += 0.01
        it.note(300)
    for _ in range(10):
        clock.now += 0.1
        it.note(1)
    assert it.in_seconds(1) < 100


def test_after_a_reset_it_stands_still(clock: Clock) -> None:
    it = Speed()
    clock.now += 0.05
    it.note(100)
    it.reset()
    assert it.in_seconds(1) == 0
