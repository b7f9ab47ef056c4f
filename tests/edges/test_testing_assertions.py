"""`assert_enqueued()` and `assert_enqueues()`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_reliable_jobs.testing import assert_enqueued, assert_enqueues, at, inline, run_jobs
from tests import tasks
from tests.tasks import leave_effect

pytestmark = pytest.mark.django_db
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_it_returns_the_jobs_that_fit() -> None:
    jobs = [tasks.effect.enqueue("a"), tasks.effect.enqueue(name="a"), tasks.effect.enqueue("b")]
    assert assert_enqueued(tasks.effect) == jobs
    assert assert_enqueued(tasks.effect, ["a"]) == assert_enqueued(tasks.effect, kwargs={"name": "a"}) == jobs[:2]
    assert assert_enqueued("tests.tasks.effect", count=3) == jobs
    run_jobs()
    assert assert_enqueued(tasks.effect, ["b"], count=1) == jobs[2:]


def test_some_of_the_arguments_are_enough() -> None:
    tasks.unique.enqueue("a", value=3)
    tasks.nothing.enqueue(1, 2, three=3)
    assert_enqueued(tasks.unique, kwargs={"value": 3})
    assert_enqueued(tasks.nothing, [1, 2])
    assert_enqueued(tasks.nothing, kwargs={"three": 3})
    assert_enqueued(tasks.nothing, [2], count=0)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"args": ["b"]}, r"no job of tests\.tasks\.effect\(name='b'\) was enqueued"),
        ({"queue_name": "slow"}, r"effect\(\) queue_name=slow was"),
        ({"priority": 1}, "priority=1"),
        ({"run_after": timedelta(hours=2)}, "run_after=2:00:00"),
        ({"run_after": NOON}, "run_after=2030-01-01"),
        ({"count": 2}, "1 jobs, not 2, of"),
        ({"count": 0}, "1 jobs, not 0, of"),
    ],
)
def test_a_failure_says_what_was_wanted_and_what_there_was(wanted: dict[str, Any], said: str) -> None:
    with at(NOON):
        tasks.effect.using(run_after=timedelta(hours=1), queue_name="fast", priority=2).enqueue("a")
    with pytest.raises(AssertionError, match=said) as error:
        assert_enqueued(tasks.effect, **wanted)
    shown = "tests.tasks.effect('a') queue_name=fast priority=2 run_after=2030-01-01T13:00:00+00:00"
    assert shown in str(error.value)
    right = {"queue_name": "fast", "priority": 2, "count": 1}
    assert_enqueued(tasks.effect, ["a"], run_after=timedelta(hours=1), **right)
    assert_enqueued(tasks.effect, ["a"], run_after=NOON + timedelta(hours=1), **right)


def test_nothing_at_all_is_said_too() -> None:
    with pytest.raises(AssertionError, match="None was at all"):
        assert_enqueued(tasks.effect)


def test_a_block_is_looked_at_by_itself() -> None:
    tasks.effect.enqueue("before")
    with assert_enqueues(tasks.effect, ["a"], count=1) as found:
        job = tasks.effect.enqueue("a")
    assert found == [job]
    with pytest.raises(AssertionError, match="no job of"), assert_enqueues(tasks.effect):
        pass
    with assert_enqueues(tasks.effect, count=0):
        tasks.nothing.enqueue()


def test_what_runs_inline_counts() -> None:
    with inline(), assert_enqueues(tasks.effect) as found:
        tasks.effect.enqueue("a")
    assert found[0].status == "SUCCEEDED"


def test_an_error_in_the_block_is_the_error() -> None:
    with pytest.raises(ZeroDivisionError), assert_enqueues(tasks.effect):
        raise ZeroDivisionError


def test_tasks_of_djangos_framework_are_known() -> None:
    pytest.importorskip("django_reliable_jobs.tasks_framework", exc_type=ImportError)
    from tests import framework_tasks

    framework_tasks.effect.enqueue("a")
    framework_tasks.effect.using(backend="patient", queue_name="patient").enqueue(name="a")
    assert len(assert_enqueued(framework_tasks.effect, ["a"])) == 2
    assert_enqueued(framework_tasks.effect, ["a"], queue_name="patient", count=1)
    framework_tasks.echo.enqueue((1, (2,)), key={1: b"abc"})
    assert_enqueued(framework_tasks.echo, [(1, (2,))], {"key": {1: b"abc"}})
    assert_enqueued(framework_tasks.echo, [[1, [2]]], {"key": {"1": "abc"}})


@pytest.mark.parametrize("no_task", [None, leave_effect])
def test_what_is_no_task_is_refused(no_task: Any) -> None:
    with pytest.raises(TypeError, match="take a task or its name, not"):
        assert_enqueued(no_task)


@pytest.mark.parametrize(("args", "kwargs"), [(["a", "b"], None), ((), {"title": "a"})])
def test_arguments_that_the_task_never_has_are_refused_though_none_is_wanted(args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError, match=r"tests\.tasks\.effect\(name.*\).* is never enqueued like this: "):
        assert_enqueued(tasks.effect, args, kwargs, count=0)
