"""One live job per key: what makes the key, how long it is held, and what becomes of a duplicate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_reliable_jobs import registry, task
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.models import Job
from django_reliable_jobs.testing import at
from tests import tasks
from tests.recorded import run_jobs

pytestmark = pytest.mark.django_db

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LIVE = ("SCHEDULED", "READY", "WAITING", "RUNNING")


@task(unique="order_id")
def keeps(order_id: int, kind: str = "full") -> None:
    pass


@task(unique="order_id", on_duplicate="replace")
def replaces(order_id: int, kind: str = "full") -> None:
    pass


@task(unique="order_id", on_duplicate="postpone", expires=60)
def postpones(order_id: int, kind: str = "full") -> None:
    pass


@task(unique="order_id", on_duplicate="raise")
def raises(order_id: int, kind: str = "full") -> None:
    pass


@task(unique=["kind", "order_id"])
def of_two(order_id: int, kind: str = "full", note: str = "") -> None:
    pass


@task(unique=True)
def of_all(order_id: int, *others: int, kind: str = "full", **more: Any) -> None:
    pass


@task(unique=True)
def of_none() -> None:
    pass


@task(unique=lambda order_id, kind: f"{order_id}" if kind == "full" else f"{order_id}/{kind}")
def of_a_function(order_id: int, kind: str = "full") -> None:
    pass


@task(unique=lambda **arguments: "-".join(sorted(arguments)))
def of_collected_names(**arguments: Any) -> None:
    pass


@task(unique=lambda answer: answer)
def of_an_answer(answer: Any) -> None:
    pass


@task(unique="order_id", max_attempts=2)
def fails(order_id: int) -> None:
    raise ValueError(order_id)


def bring_to(job: Job, status: str) -> Job:
    """Bring a live job into another live status, as a claim, a failure or a wait would have done."""
    started = {"token": 7, "worker_id": 7, "started_at": timezone.now(), "attempt": 1, "claims": 1}
    Job.objects.filter(pk=job.pk).update(status=status, **(started if status == "RUNNING" else {}))
    return job


def end(job: Job, status: str) -> None:
    Job.objects.filter(pk=job.pk).update(status=status, finished_at=timezone.now())


# What makes the key


def test_the_same_call_has_one_key_however_it_is_written() -> None:
    first = keeps.enqueue(1)
    for duplicate in (
        keeps.enqueue(1),
        keeps.enqueue(order_id=1),
        keeps.enqueue(1, "half"),
        keeps.enqueue(kind="half", order_id=1),
        keeps.using(priority=3).enqueue(1),
        *keeps.enqueue_many([{"order_id": 1}]),
    ):
        assert (duplicate, duplicate.created) == (first, False)
    assert keeps.enqueue(2).created


def test_several_arguments_make_one_key_with_their_defaults() -> None:
    first = of_two.enqueue(1, note="a")
    assert of_two.enqueue(1, "full", note="b") == of_two.enqueue(kind="full", order_id=1) == first
    assert of_two.enqueue(1, "half").created


def test_all_arguments_make_the_key() -> None:
    first = of_all.enqueue(1)
    assert of_all.enqueue(order_id=1, kind="full") == first
    calls: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((1, 2), {}),
        ((1,), {"kind": "half"}),
        ((1,), {"x": None}),
        ((2,), {}),
    ]
    for args, kwargs in calls:
        assert of_all.enqueue(*args, **kwargs).created
        assert not of_all.enqueue(*args, **kwargs).created


def test_a_task_without_arguments_has_one_job() -> None:
    assert of_none.enqueue().created
    assert not of_none.enqueue().created


def test_a_function_makes_the_key_of_the_arguments_by_name() -> None:
    first = of_a_function.enqueue(1)
    assert of_a_function.enqueue(order_id=1, kind="full") == first
    assert of_a_function.enqueue(1, "half").created
    named = of_collected_names.enqueue(b=1, a=2)
    assert of_collected_names.enqueue(a=3, b=4) == named
    assert of_collected_names.enqueue(c=1).created


@pytest.mark.parametrize("answer", [None, "", 1, ["x"]])
def test_a_function_that_returns_no_text_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"of_an_answer: the function given as unique must return text, not"):
        of_an_answer.enqueue(answer)
    assert not Job.objects.exists(), "and the transaction is usable"


def test_a_key_given_at_the_call_takes_the_place_of_the_declared_one() -> None:
    first = keeps.using(unique_key="1").enqueue(1)
    assert keeps.using(unique_key="1").enqueue(2) == first
    assert keeps.enqueue(1).created, "the text '1' is not the argument 1"
    assert tasks.nothing.using(unique_key="1").enqueue().created
    assert not tasks.nothing.using(unique_key="1").enqueue().created


def test_a_key_given_at_the_call_is_not_the_argument_of_the_same_value() -> None:
    assert tasks.unique.enqueue("a").created
    assert tasks.unique.using(unique_key="a").enqueue("b").created


def test_the_same_key_of_another_task_is_another_key() -> None:
    assert keeps.enqueue(1).created
    assert replaces.enqueue(1).created
    assert replaces.using(unique_key="x").enqueue(2).created
    assert keeps.using(unique_key="x").enqueue(2).created


def test_a_renamed_task_has_keys_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    old = keeps.enqueue(1)
    monkeypatch.setattr(registry, "_tasks", {})
    renamed = task(name="renamed", aliases=[keeps.name], unique="order_id")(renamed_function)
    assert renamed.enqueue(1).created
    assert old.status == "READY"


def renamed_function(order_id: int) -> None:
    pass


# How long the key is held


@pytest.mark.parametrize("status", LIVE)
def test_a_live_job_holds_its_key(status: str) -> None:
    job = bring_to(keeps.enqueue(1), status)
    assert (keeps.enqueue(1), keeps.enqueue_many([{"order_id": 1}])) == (job, [job])


@pytest.mark.parametrize("status", ["SUCCEEDED", "DEAD", "CANCELLED"])
def test_an_ended_job_holds_no_key(status: str) -> None:
    ended = keeps.enqueue(1)
    end(ended, status)
    assert keeps.enqueue(1).created
    [duplicate] = keeps.enqueue_many([{"order_id": 1}])
    assert (duplicate.created, duplicate == ended) == (False, False)


def test_until_the_end_a_job_that_waits_for_its_retry_holds_the_key() -> None:
    fails.enqueue(1)
    [failed] = run_jobs()
    assert failed.status == "SCHEDULED"
    assert fails.enqueue(1) == failed


def test_until_the_start_a_started_job_holds_no_key_and_its_retry_neither() -> None:
    first = tasks.unique_until_start.enqueue("a", fail=True)
    assert tasks.unique_until_start.enqueue("a") == first
    [failed] = run_jobs()
    assert (failed.status, failed.unique_hash) == ("SCHEDULED", None)
    second = tasks.unique_until_start.enqueue("a")
    assert second.created
    with at(timezone.now() + timedelta(minutes=1)):
        assert set(run_jobs()) == {first, second}
    assert {job.status for job in Job.objects.all()} == {"SUCCEEDED", "DEAD"}
