"""The fixtures that pytest has wherever the package is installed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.urls import reverse

from django_reliable_jobs import testing
from django_reliable_jobs.models import Job
from django_reliable_jobs.pytest_plugin import Jobs
from testproject.shop.models import Customer, Invoice
from testproject.shop.tasks import make_invoice
from tests import tasks
from tests.models import Effect


@pytest.fixture
def order(db: None) -> dict[str, Any]:
    """What a customer sends."""
    ada = Customer.objects.create(name="Ada", email="ada@example.com")
    return {"customer": ada.pk, "product": "Tea", "quantity": 2, "unit_price": "3.50"}


def test_a_view_that_enqueues(client: Any, jobs: Jobs, order: dict[str, Any]) -> None:
    client.post(reverse("place-order"), order)
    jobs.assert_enqueued(make_invoice, count=1)
    jobs.run()
    assert Invoice.objects.get().total == 7


def test_a_view_whose_jobs_run_at_once(client: Any, jobs_inline: Jobs, order: dict[str, Any]) -> None:
    client.post(reverse("place-order"), order)
    assert Invoice.objects.get().total == 0, "the jobs did not wait for the lines, which the view writes after them"


def test_jobs_wait_until_they_are_run(jobs: Jobs) -> None:
    with jobs.assert_enqueues(tasks.effect, ["a"]) as [*enqueued]:
        job = tasks.effect.enqueue("a")
    assert enqueued == [] and not Effect.objects.exists()
    assert jobs.run() == [job]
    assert Effect.objects.get().name == "a"


def test_what_a_job_raises_fails_the_test(jobs: Jobs) -> None:
    tasks.fails.enqueue("it broke")
    with pytest.raises(ValueError, match="it broke"):
        jobs.run()
    tasks.fails.enqueue("it broke")
    [job] = jobs.run(raise_errors=False)
    assert job.status == "SCHEDULED"
    with pytest.raises(
        RuntimeError, match=r"1 jobs have run \(max_jobs\), and there are more: do they enqueue each other"
    ):
        jobs.run(until=timedelta(minutes=1), max_jobs=1, raise_errors=False)


@pytest.mark.parametrize("name", ["run_jobs", "run_workflow", "tick", "at", "assert_enqueued", "assert_enqueues"])
def test_the_fixture_takes_what_the_functions_take(name: str) -> None:
    offered = inspect.signature(getattr(Jobs, name.removesuffix("_jobs"))).parameters
    known = set(inspect.signature(getattr(testing, name)).parameters)
    assert known <= set(offered) or any(each.kind is each.VAR_KEYWORD for each in offered.values())


def test_the_clock_moves(jobs: Jobs) -> None:
    with jobs.at("2030-01-01 12:00", "UTC"):
        job = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
        assert jobs.run() == []
    with jobs.at(datetime(2030, 1, 1, 13, tzinfo=UTC)):
        assert jobs.run() == [job]
    assert jobs.tick(at="2000-01-01 00:00+00:00") == []


def test_jobs_run_inline_and_their_errors_reach_the_caller(jobs_inline: Jobs) -> None:
    assert tasks.effect.enqueue("a").result == "a"
    with pytest.raises(ValueError, match="it broke"):
        tasks.fails.enqueue()
    assert Job.objects.filter(status="SUCCEEDED").count() == 1


def test_the_plugin_imports_nothing_of_django_before_it_is_used() -> None:
    code = "import sys, django_reliable_jobs.pytest_plugin; print([n for n in sys.modules if n.startswith('django.')])"
    plain = "import sys, django_reliable_jobs; print([n for n in sys.modules if n.startswith('django.')])"
    loaded = [
        subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, check=True).stdout
        for each in (code, plain)
    ]
    assert loaded[0] == loaded[1]
