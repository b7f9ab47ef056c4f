"""`run_workflow()`: a job of steps, run step by step."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from django_reliable_jobs import emit_event, sleep, step, wait_for_event
from django_reliable_jobs.models import Attempt, Job
from django_reliable_jobs.testing import at, run_jobs, run_workflow
from testproject.shop.models import Customer, Order, Shipment, Stock
from testproject.shop.tasks import fulfil_order
from tests import step_tasks
from tests.factories import PausedQueueFactory, RunningJobFactory
from tests.models import Effect
from tests.step_tasks import IN_A_MINUTE, fails, fails_until, leaves

pytestmark = pytest.mark.django_db


def enqueue(flow: Any) -> Job:
    step_tasks.flow = flow
    return step_tasks.follows.enqueue()


def order_of_days() -> Any:
    step("charge", leaves, "charge")
    sleep("cool down", timedelta(days=3))
    step("reserve", fails_until, "reserve", 3, backoff=IN_A_MINUTE, max_attempts=4)
    shipment = wait_for_event("shipped:7")
    step("mail", leaves, "mail")
    return shipment


def done() -> list[str]:
    return list(Effect.objects.order_by("id").values_list("name", flat=True))


def test_it_runs_over_sleeps_and_pauses_to_the_wait_and_from_there_to_the_end() -> None:
    job = run_workflow(enqueue(order_of_days))
    assert (job.status, done()) == ("WAITING", ["charge", "reserve", "reserve", "reserve"])
    assert run_workflow(job, until="shipped").status == "WAITING"
    emit_event("shipped:7", {"tracking": "1Z"})
    job = run_workflow(job)
    assert (job.status, job.result, done()[-1]) == ("SUCCEEDED", {"tracking": "1Z"}, "mail")
    assert run_workflow(job).status == "SUCCEEDED"


@pytest.mark.parametrize(("until", "before"), [("charge", []), ("reserve", ["charge"]), ("cool down", ["charge"])])
def test_it_stands_before_a_step_and_uses_no_attempt(until: str, before: list[str]) -> None:
    job = run_workflow(enqueue(order_of_days), until=until)
    assert (job.status, job.attempt, done()) == ("READY", 0, before)
    assert run_workflow(job, until=until).status == "READY"
    assert (run_workflow(job, until="shipped").attempt, done()[0], done()[-1]) == (0, "charge", "reserve")
    assert not Attempt.objects.filter(outcome="failed").exists()


def test_where_it_stands_instead_is_told() -> None:
    job = enqueue(order_of_days)
    with pytest.raises(AssertionError, match=r"never came to 'mail': it is WAITING .*charge, cool down, reserve"):
        run_workflow(job, until="mail")
    emit_event("shipped:7", {})
    with pytest.raises(AssertionError, match="never came to 'charge': it is SUCCEEDED"):
        run_workflow(job, until="charge")


def test_errors_are_raised_unless_asked_otherwise() -> None:
    with pytest.raises(Exception, match="it broke"):
        run_workflow(enqueue(lambda: step("fails", fails, "fails", max_attempts=1)))
    job = run_workflow(enqueue(lambda: step("fails", fails, "again", max_attempts=1)), raise_errors=False)
    assert job.status == "DEAD"


def test_a_job_that_cannot_start_is_returned_as_it_is() -> None:
    PausedQueueFactory(name="default")
    assert run_workflow(enqueue(order_of_days)).status == "READY"


def test_a_timeout_is_reached_by_moving_the_clock() -> None:
    job = run_workflow(step_tasks.waits.enqueue("never", seconds=3600), until="never")
    with at(timezone.now() + timedelta(hours=2)):
        job = run_workflow(job)
    assert job.result == "too late"
    job = step_tasks.waits.enqueue("never either", seconds=3600)
    run_jobs(until=timedelta(hours=2))
    job.refresh_from_db()
    assert job.result == "too late"


def sleeps_and_waits() -> Any:
    sleep("cool down", timedelta(days=3))
    return wait_for_event("came")


def test_a_clock_that_goes_back_before_a_sleep_ends_it_is_slept_on_though_the_event_came() -> None:
    job = run_workflow(enqueue(sleeps_and_waits), until="came")
    emit_event("came", 7)
    assert run_jobs(max_jobs=9) == [job]
    job.refresh_from_db()
    assert (job.status, job.reason) == ("WAITING", "sleeps: cool down")
    run_jobs(until=timedelta(days=4))
    job.refresh_from_db()
    assert (job.status, job.result) == ("SUCCEEDED", 7)


def test_pauses_of_children_are_gone_over_and_no_more_than_these() -> None:
    job = run_workflow(step_tasks.has_a_child_of_days.enqueue())
    assert (job.status, job.result) == ("SUCCEEDED", "after 3 days")
    assert job.finished_at is not None and job.finished_at - job.created_at < timedelta(days=4)


def test_a_parent_whose_child_waits_for_an_event_waits_too() -> None:
    job = run_workflow(step_tasks.has_one_child.enqueue("waits"))
    assert (job.status, job.reason) == ("WAITING", "waits for its children")
    emit_event("for a", None)
    assert run_workflow(job).result == ["of", "A"]


def test_a_job_that_runs_elsewhere_is_returned_as_it_is() -> None:
    job = RunningJobFactory(task="tests.step_tasks.follows")
    assert run_workflow(job).status == "RUNNING"


def test_the_order_flow_of_the_shop() -> None:
    order = Order.objects.create(customer=Customer.objects.create(name="Ada", email="ada@example.com"))
    order.lines.create(product="Tea", quantity=2, unit_price=3)
    Stock.objects.create(product="Tea", quantity=10)
    job = run_workflow(fulfil_order.enqueue(order.pk), until="shipped")
    assert (Stock.objects.get().quantity, Shipment.objects.count()) == (8, 1)
    emit_event(f"shipped:{order.pk}", {"tracking": "1Z"})
    assert run_workflow(job).result == "1Z"
    assert "1Z" in mail.outbox[-1].body
