"""The measured tasks that work in steps."""

from __future__ import annotations

from datetime import timedelta

from django_reliable_jobs import start_children, step, task, wait_for, wait_for_event
from testproject.benchmarks.peers import marks
from testproject.benchmarks.peers.driver import STEPS


@task(name="benchmark.parts")
def parts(number: int) -> None:
    """Do so many steps."""
    for each in range(STEPS):
        step("part", part, each)


def part(number: int) -> int:
    """Do nothing but count that it ran."""
    marks.ran()
    return number


@task(name="benchmark.member")
def member(number: int) -> None:
    """Do nothing but count that it ran."""
    marks.ran()


@task(name="benchmark.parent")
def parent(jobs: int, waits: int) -> None:
    """Enqueue so many jobs, as children that are waited for or without a tie."""
    calls = [{"number": number} for number in range(jobs)]
    if waits:
        wait_for(start_children(member, calls))
    else:
        member.enqueue_many(calls)


@task(name="benchmark.waits")
def waits(number: int) -> None:
    """Wait three days for an event."""
    wait_for_event(f"benchmark:{number}", timeout=timedelta(days=3))
    marks.ran()
