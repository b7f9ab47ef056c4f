"""What a job can't carry leaves the transaction usable; what it can carry comes back equal."""

from __future__ import annotations

import json
import random
from datetime import date
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import override_settings

from django_reliable_jobs import Batch, start_child, task, wait_for
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.models import Job
from django_reliable_jobs.testing import run_jobs
from tests import tasks
from tests.models import Effect


@task()
def echo(value: Any) -> Any:
    return value


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        "a\0b",
        "\ud800",
        {"\0": 1},
        {"a": ["\udfff"]},
        {1: 2},
        (1,),
        {1},
        b"x",
        date(2030, 1, 1),
        10**5000,
        "x" * 300_000,
        Effect(),
        Effect.objects.none(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_refused_argument_inserts_nothing_and_leaves_the_transaction_usable(value: Any) -> None:
    with transaction.atomic():
        Effect.objects.create(name="the caller's")
        for call in (
            lambda: echo.enqueue(value),
            lambda: echo.using(unique_key="x").enqueue(value=value),
            lambda: echo.enqueue_many([{"value": 1}, {"value": value}]),
            lambda: async_to_sync(echo.aenqueue)(value),
        ):
            with pytest.raises(InvalidArguments, match="value"):
                call()
        Effect.objects.create(name="another")
    assert Effect.objects.count() == 2
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_the_limit_is_that_of_the_settings() -> None:
    with override_settings(RELIABLE_JOBS={"MAX_ARGUMENT_BYTES": 100}):
        assert echo.enqueue("x" * 94)  # and ["…"] and {}
        with pytest.raises(InvalidArguments, match=r"take 101 bytes as JSON, more than MAX_ARGUMENT_BYTES \(100\)"):
            echo.enqueue("x" * 95)


@pytest.mark.django_db
def test_every_kind_of_parameter_is_called_as_it_was_enqueued() -> None:
    seen: list[Any] = []
    for call, arguments in (
        (tasks.nothing, ((1, [2]), {"x": {"y": None}})),
        (mixed, ((1,), {"kind": "half"})),
        (positional_only, ((1,), {"kind": "half"})),
        (keyword_only, ((), {"order_id": 1})),
        (tasks.with_context, (("a",), {})),
    ):
        args, kwargs = arguments
        call.enqueue(*args, **kwargs)  # type: ignore[operator]
        [job] = run_jobs()
        assert job.status == "SUCCEEDED", job.reason
        seen.append(job.result)
    assert seen[:4] == [None, [1, "half"], [1, "half"], 1]
    assert seen[4]["name"] == "a"


@task()
def mixed(order_id: int, kind: str) -> list[Any]:
    return [order_id, kind]


@task()
def positional_only(order_id: int, /, kind: str) -> list[Any]:
    return [order_id, kind]


@task()
def keyword_only(*, order_id: int) -> int:
    return order_id


@task()
def with_awkward_names(self: int, args: int, kwargs: int, task: int) -> list[int]:
    return [self, args, kwargs, task]


@task()
def with_an_awkward_child() -> Any:
    return wait_for(start_child(with_awkward_names, **AWKWARD))


AWKWARD = {"self": 1, "args": 2, "kwargs": 3, "task": 4}


@pytest.mark.django_db
def test_an_argument_may_have_any_name() -> None:
    with_awkward_names.enqueue(**AWKWARD)
    async_to_sync(partial(with_awkward_names.aenqueue, **AWKWARD))()
    with_awkward_names.using(priority=1).enqueue(**AWKWARD)
    with Batch() as batch:
        batch.enqueue(with_awkward_names, **AWKWARD)
    with_an_awkward_child.enqueue()
    run_jobs()
    assert [job.result for job in Job.objects.all()] == [[1, 2, 3, 4]] * 6
    assert with_awkward_names(**AWKWARD) == [1, 2, 3, 4]


@pytest.mark.django_db
def test_the_context_can_not_be_passed() -> None:
    with pytest.raises(InvalidArguments, match=r"there is no argument 'context'"):
        tasks.with_context.enqueue(name="a", context=None)  # type: ignore[call-arg]


class RandomJson:
    """JSON values of all kinds, the awkward ones often."""

    TEXTS = ("", "a", "ä€😀", '"\\/\b\f\n\r\t', "\x01\x7f\x85\u2028", "\\u0000", "null", "1e+23", "\ufeff\uffff", "𐏿")
    NUMBERS = (0, -1, 2**53 + 1, -(2**63), 2**64, 10**40, 10**400, 0.1, -0.0, 1.0, 1e16, 1e22, 1e23, -1.5e300)
    FLOATS = (1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 1e-7, 1 / 3, 123456789012345680.0)

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, levels: int = 4) -> Any:
        kind = self.random.randrange(9 if levels else 7)
        if kind == 0:
            return self.random.choice((None, True, False))
        if kind == 1:
            return self.random.choice(self.TEXTS)
        if kind == 2:
            return "".join(self.random.choice(self.TEXTS) for _ in range(self.random.randrange(5)))
        if kind == 3:
            return self.random.choice(self.NUMBERS + self.FLOATS)
        if kind == 4:
            return self.random.choice((-1, 1)) * self.random.random() * 10.0 ** self.random.randrange(-300, 300)
        if kind in (5, 6):
            return self.random.choice((-1, 1)) * self.random.getrandbits(self.random.randrange(1, 200))
        values = [self.value(levels - 1) for _ in range(self.random.randrange(4))]
        return (
            values
            if kind == 7
            else {f"{self.random.choice(self.TEXTS)}{number}": each for number, each in enumerate(values)}
        )


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal and of the same types throughout."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(5))
def test_what_is_accepted_comes_back_equal(seed: int) -> None:
    generator = RandomJson(seed)
    given = [generator.value() for _ in range(200)]
    jobs = echo.enqueue_many([{"value": value} for value in given])
    for value, job, row in zip(given, jobs, Job.objects.order_by("id"), strict=True):
        assert same(job.kwargs, {"value": value})
        assert same(row.kwargs, {"value": value})
    with connection.cursor() as cursor:
        cursor.execute("SELECT kwargs::text FROM django_reliable_jobs_job ORDER BY id")
        for value, (text,) in zip(given, cursor.fetchall(), strict=True):
            assert same(json.loads(text), {"value": value})


@pytest.mark.django_db
def test_what_a_task_gets_and_returns_is_what_was_enqueued() -> None:
    given = [1e23, -1.5e300, 10**400, 0.1, {"a": [None, "😀", 1.0]}]
    echo.enqueue(given)
    [job] = run_jobs()
    assert same(job.result, given)
