"""Steps of which nobody knows whether they had their effect, undos that failed, and families that are cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_reliable_jobs import Fail, current_job, start_child, step, wait_for
from django_reliable_jobs.engine import cancelling, lifecycle, revival
from django_reliable_jobs.models import Alert, CancelRequest, Checkpoint, Job
from testproject.shop import fulfilment, payments
from testproject.shop.tasks import fulfil_order
from tests import orders, step_tasks
from tests.claims import claim_one_as
from tests.concurrency.test_step_races import run as run_claimed
from tests.engine.test_undo import begin_by_hand, breaks, die, effects, go_on, row, row_of, run
from tests.recorded import run_jobs
from tests.step_tasks import unmake

pytestmark = pytest.mark.django_db(transaction=True)


def go_on_for_minutes(job: Job, minutes: int = 12) -> Any:
    for minute in range(1, minutes):
        go_on(job, 60.0 * minute)
    return row(job)


def charged_and_lost(charge: Callable[..., int]) -> Callable[..., int]:
    """The provider charges the card, and its answer does not arrive."""

    def lose(**given: Any) -> int:
        charge(**given)
        raise ConnectionError("the answer was lost")

    return lose


def is_down(*args: Any, **kwargs: Any) -> Any:
    raise ConnectionError("nobody answers")


class TestAtomic:
    """What failed in a transaction of its own has left nothing: it is not called again."""

    def test_a_try_that_was_rolled_back_is_not_repeated_when_the_job_is_cancelled(self) -> None:
        def flow() -> None:
            step("half", step_tasks.makes_half, "a", undo=unmake, atomic=True, backoff=step_tasks.IN_A_MINUTE)

        job = run(flow)
        assert (job.status, effects()) == ("SCHEDULED", [])
        lifecycle.cancel("default", [job.pk], reason="not needed")
        assert (row(job).status, row(job).compensation, effects()) == ("CANCELLED", "none", [])

    def test_the_stock_of_a_cancelled_order_is_what_it_was(self, monkeypatch: pytest.MonkeyPatch) -> None:
        order = orders.place_order()
        line = order.lines.get()
        order.lines.create(product="never in stock", quantity=1, unit_price=line.unit_price)
        job = fulfil_order.enqueue(order.pk)
        with monkeypatch.context() as patch:
            patch.setattr(fulfilment.Stock.objects, "filter", is_down)
            run_jobs()
        assert Checkpoint.objects.get(name="reserve").state == "trying"
        lifecycle.cancel("default", [job.pk], reason="not needed")
        job = go_on_for_minutes(job)
        assert (job.status, job.compensation) == ("CANCELLED", "done")
        assert (orders.stock(), orders.money_of(order)) == (orders.STOCK, (1, 1))


def cancelled_with_a_charge_in_doubt(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Job]:
    """Return an order, and its job that was cancelled when the answer to its charge was lost."""
    order = orders.place_order()
    with monkeypatch.context() as patch:
        patch.setattr(payments, "charge", charged_and_lost(payments.charge))
        job = fulfil_order.enqueue(order.pk)
        run_jobs()
    lifecycle.cancel("default", [job.pk], reason="not needed")
    return order, job


class TestInDoubt:
    def test_a_charge_whose_answer_was_lost_is_refunded_when_the_order_is_cancelled(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        order, job = cancelled_with_a_charge_in_doubt(monkeypatch)
        job = go_on_for_minutes(job)
        assert (job.status, job.compensation, orders.money_of(order)) == ("CANCELLED", "done", (1, 1))

    def test_while_the_provider_is_down_nothing_is_written_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        order, job = cancelled_with_a_charge_in_doubt(monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(payments, "charge", is_down)
            job = go_on_for_minutes(job)
        assert (job.status, job.compensation, orders.money_of(order)) == ("CANCELLED", "failed", (1, 0))
        assert list(Alert.objects.values_list("kind", flat=True)) == ["undo_failed"]
        assert revival.retry_undo("default", [job.pk]) == [job.pk]
        job = go_on_for_minutes(job)
        assert (job.status, job.compensation, orders.money_of(order)) == ("CANCELLED", "done", (1, 1))

    def test_an_error_that_the_task_gives_up_on_says_that_nothing_was_done(self) -> None:
        order = orders.place_order(card="declined")
        job = go_on_for_minutes(fulfil_order.enqueue(order.pk), 3)
        assert (job.status, job.compensation, orders.money_of(order)) == ("DEAD", "none", (0, 0))
        assert Checkpoint.objects.get(name="charge").tries == 1

    def test_fail_says_so_too(self) -> None:
        def flow() -> None:
            step("make a", step_tasks.refuses, "a", undo=unmake)

        job = run(flow)
        assert (job.status, job.compensation, effects()) == ("DEAD", "none", ["refused"])
        assert Checkpoint.objects.get(name="make a").state == "failed"

    def test_one_that_was_cut_off_and_then_says_so_is_known_to_have_done_nothing(self) -> None:
        step_tasks.follows.enqueue()
        job = claim_one_as(1)
        begin_by_hand(job, "a")
        Checkpoint.objects.update(function="tests.step_tasks:refuses")
        die(job)
        run_jobs()
        assert (row_of(job).status, row_of(job).compensation, effects()) == ("DEAD", "done", ["refused"])
        assert Checkpoint.objects.get(name="make a").state == "failed"


class TestRetry:
    def test_a_job_whose_undo_failed_is_left_alone(self) -> None:
        job = run(breaks)
        done = revival.revive("default", [job.pk])
        assert (done.revived, done.is_not_undone) == ([], [job.pk])
        assert (row(job).status, row(job).compensation, row(job).run) == ("DEAD", "failed", 1)

    def test_it_begins_anew_if_that_is_asked_for(self) -> None:
        job = run(breaks)
        done = revival.revive("default", [job.pk], from_start=True)
        assert (done.revived, done.is_not_undone) == ([job.pk], [])
        assert (row(job).compensation, row(job).run) == ("none", 2)

    def test_one_that_waits_for_its_next_try_is_not_begun_anew_before_it_has_undone_what_it_did(self) -> None:
        def flow() -> None:
            step("make a", step_tasks.make, "a", undo=unmake)
            step("flaky", step_tasks.fails_until, "flaky", 9, backoff=step_tasks.IN_A_MINUTE)

        job = run(flow)
        assert job.status == "SCHEDULED"
        assert revival.revive("default", [job.pk], from_start=True).revived == []
        lifecycle.cancel("default", [job.pk], reason="anew")
        run_jobs()
        assert revival.revive("default", [job.pk], from_start=True).revived == [job.pk]
        assert effects() == ["make a", "flaky", "unmake a"]


class TestFamily:
    def test_a_waiting_parent_is_cancelled_before_it_can_hear_of_its_children(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def flow() -> str:
            try:
                wait_for(start_child(step_tasks.child, "a", "waits"))
            except Exception:
                step("other", step_tasks.make, "another way")
            return "went on"

        job = run(flow)
        assert job.status == "WAITING"
        cancel_at_rest = cancelling.cancel_at_rest

        def after_a_worker_has_looked(cursor: Any, ids: list[int], *, reason: str) -> Any:
            if ids == [job.pk]:
                run_jobs()  # a worker, in the moment before the parent is reached
            return cancel_at_rest(cursor, ids, reason=reason)

        monkeypatch.setattr(cancelling, "cancel_at_rest", after_a_worker_has_looked)
        lifecycle.cancel("default", [job.pk], reason="no more", children=True)
        run_jobs()
        assert set(Job.objects.values_list("status", flat=True)) == {"CANCELLED"}
        assert "make another way" not in effects()

    def test_children_that_a_running_parent_starts_after_the_request_are_cancelled_with_it(self) -> None:
        def flow() -> None:
            lifecycle.cancel("default", [current_job().id], reason="no more", children=True)
            wait_for(start_child(step_tasks.child, "a", "waits"))

        job = run(flow)
        run_jobs()
        assert (row(job).status, row(job).reason) == ("CANCELLED", "no more")
        child = Job.objects.exclude(pk=job.pk).get()
        assert (child.status, child.reason) == ("CANCELLED", "cancelled with the job that started it")
        assert not CancelRequest.objects.exists()

    @pytest.mark.parametrize(("children", "status"), [(True, "CANCELLED"), (False, "SUCCEEDED")])
    def test_a_request_keeps_whether_children_are_meant(self, children: bool, status: str) -> None:
        step_tasks.flow = start_one_and_fail
        parent = step_tasks.follows.enqueue()
        job = claim_one_as(1)
        lifecycle.cancel("default", [parent.pk], reason="no more", children=children)
        run_claimed(job)
        run_jobs()
        assert row(parent).status == "CANCELLED"
        assert Job.objects.exclude(pk=parent.pk).get().status == status

    def test_a_second_request_may_mean_the_children_too(self) -> None:
        step_tasks.flow = start_one_and_fail
        parent = step_tasks.follows.enqueue()
        job = claim_one_as(1)
        lifecycle.cancel("default", [parent.pk], reason="no more")
        assert lifecycle.cancel("default", [parent.pk], reason="really", children=True).asked == [parent.pk]
        assert lifecycle.cancel("default", [parent.pk], reason="really", children=False).asked == []
        run_claimed(job)
        run_jobs()
        assert row(parent).reason == "no more"
        assert Job.objects.exclude(pk=parent.pk).get().status == "CANCELLED"


def start_one_and_fail() -> None:
    start_child(step_tasks.child, "a")
    raise Fail("the end")
