"""Retry, Snooze, Cancel and Fail that a step raises act on the job at once, whoever catches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_reliable_jobs import sleep, step
from django_reliable_jobs.context import StopFlag
from django_reliable_jobs.models import Checkpoint
from django_reliable_jobs.processes.execution import call_here, execute
from tests import step_tasks
from tests.claims import claim_one_as, replace
from tests.engine.test_undo import effects, run
from tests.step_tasks import leaves, raises_ending

pytestmark = pytest.mark.django_db

ENDINGS = [("retry", "SCHEDULED"), ("snooze", "SCHEDULED"), ("cancel", "CANCELLED"), ("fail", "DEAD")]


@pytest.mark.parametrize(("ending", "status"), ENDINGS)
class TestCaught:
    def test_no_further_step_begins(self, ending: str, status: str) -> None:
        def flow() -> None:
            try:
                step("one", raises_ending, ending)
            except Exception:
                step("two", leaves, "two")
            sleep("nap", 10)

        assert run(flow).status == status
        assert effects() == [ending]
        assert not Checkpoint.objects.exists()

    def test_a_task_that_returns_ends_so_all_the_same(self, ending: str, status: str) -> None:
        assert run(lambda: caught(lambda: step("one", raises_ending, ending))).status == status

    def test_an_error_that_the_task_makes_of_it_changes_nothing(self, ending: str, status: str) -> None:
        def flow() -> None:
            try:
                step("one", raises_ending, ending)
            except Exception as error:
                raise ValueError("another") from error

        job = run(flow)
        assert (job.status, "another" in job.reason) == (status, False)


def caught(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception:
        return "went on"
    return "nothing happened"


@pytest.mark.django_db(transaction=True)
def test_a_step_that_runs_too_long_while_its_job_is_replaced_writes_nothing() -> None:
    def runs_too_long_and_is_replaced() -> None:
        replace(first)
        step_tasks.current_job()._stop.reason = "step"  # as the worker's deadlines do
        step_tasks.current_job().raise_if_stopping()

    step_tasks.flow = lambda: step("one", runs_too_long_and_is_replaced, timeout=5)
    step_tasks.follows.enqueue()
    first = claim_one_as(1)
    execute(first, StopFlag(), using="default", call=call_here, leave=lambda: None)
    assert not Checkpoint.objects.exists()
