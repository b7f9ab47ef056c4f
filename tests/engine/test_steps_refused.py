"""Steps that can't begin or be kept: the task does not go on without them, as no replay could follow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from django_reliable_jobs import sleep, start_child, start_children, step, wait_for_event
from django_reliable_jobs.engine.steps import StepPort
from django_reliable_jobs.models import Checkpoint
from tests import step_tasks, tasks
from tests.claims import claim_one_as, row
from tests.concurrency.test_step_races import run as run_claimed
from tests.engine.test_undo import effects, go_on, run
from tests.step_tasks import leaves, make, unmake


def starts_a_child_that_another_job_is() -> None:
    start_child(tasks.unique, "taken")


def starts_a_child_with_a_set() -> None:
    start_children(step_tasks.child, [{"name": {1}}])


def keeps_a_set_for_an_undo() -> None:
    step("make", make, {1}, undo=unmake)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "first", [starts_a_child_that_another_job_is, starts_a_child_with_a_set, keeps_a_set_for_an_undo]
)
class TestCaught:
    def test_no_further_step_begins(self, first: Callable[[], Any]) -> None:
        """Else the job would sleep, and never fit its history again."""
        tasks.unique.using(run_after=timedelta(days=1)).enqueue("taken")

        def flow() -> None:
            try:
                first()
            except Exception:
                step("another way", leaves, "another way")
            sleep("nap", 10)

        job = run(flow)
        assert job.status == "DEAD"
        assert "another way" not in effects()
        assert not Checkpoint.objects.exists()

    def test_a_task_that_asks_for_nothing_more_ends_as_it_likes(self, first: Callable[[], Any]) -> None:
        tasks.unique.using(run_after=timedelta(days=1)).enqueue("taken")

        def flow() -> str:
            try:
                first()
            except Exception:
                return "well"
            return "started"

        assert run(flow).result == "well"


@pytest.mark.django_db
def test_a_step_whose_result_could_not_be_written_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(self: StepPort, record: Any) -> bool:
        raise OperationalError("the disk is full")

    def flow() -> str:
        try:
            step("charge", leaves, "charge", "kept")
        except Exception:
            step("another way", leaves, "another way")
        sleep("nap", 10)
        return "rested"

    with monkeypatch.context() as patch:
        patch.setattr(StepPort, "try_to_record", cannot)
        job = run(flow, step_tasks.follows_in_a_minute)
    assert (job.status, effects()) == ("SCHEDULED", ["charge"])
    go_on(job, 80)
    assert go_on(job, 100).result == "rested"
    assert effects() == ["charge", "charge"]


@pytest.mark.django_db(transaction=True)
class TestTransactionByHand:
    """A transaction that Django's `atomic` knows nothing of: its rollback would forget the wait, for ever."""

    def refused(self, flow: Callable[[], Any]) -> None:
        step_tasks.flow = flow
        step_tasks.follows_once.enqueue()
        job = claim_one_as(1)
        run_claimed(job)
        connection.close()
        assert row(job).status == "DEAD"
        assert "stands inside a transaction (on the database 'default')" in row(job).reason
        assert not Checkpoint.objects.exists()

    def test_a_wait_with_autocommit_off_is_refused(self) -> None:
        def flow() -> None:
            transaction.set_autocommit(False)
            try:
                wait_for_event("paid")
            finally:
                transaction.rollback()
                transaction.set_autocommit(True)

        self.refused(flow)

    def test_a_step_after_begin_is_refused(self) -> None:
        def flow() -> None:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                try:
                    step("one", leaves, "one")
                finally:
                    cursor.execute("ROLLBACK")

        self.refused(flow)
