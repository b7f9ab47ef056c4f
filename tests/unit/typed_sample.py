"""What a type checker must accept, and (where a comment says so) refuse. Read by test_typing, never run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import assert_type

from django_reliable_jobs import JobContext, Task, current_job, exponential, task
from django_reliable_jobs.batches import Batch, Batches
from django_reliable_jobs.models import Job
from django_reliable_jobs.pytest_plugin import Jobs


@task
def bare(order_id: int) -> str:
    return str(order_id)


@task(priority=3, max_attempts=2, unique="order_id", backoff=exponential(first=2), retry_on=OSError)
def charge(order_id: int, kind: str = "full") -> int:
    return order_id


@task(takes_context=True, queue_name="fast", on_dead="shop.bury", expires=timedelta(days=1))
def tells(context: JobContext, order_id: int) -> None:
    context.raise_if_stopping()


@task()
async def waits(order_id: int) -> int:
    return order_id


def written(order_id: int) -> str:
    return str(order_id)


def lines_after(position: int | None) -> Iterator[tuple[str, int]]:
    yield "line", (position or 0) + 1


def goes_through_many(context: JobContext) -> None:
    for batch in context.batches(Job.objects.filter(task="x"), size=10, by=("task", "pk")):
        with batch as same:
            assert_type(batch, Batch[Job])
            assert_type(list(same), list[Job])
            batch.skip(batch[0], ValueError("no"))
    loop = context.batches(lines_after, max_run_time=timedelta(hours=1))
    assert_type(loop, Batches[str])
    assert_type(loop.done, int)
    context.batches(lines_after, by="pk")  # refused: No overload variant of "batches" of "JobContext" matches


def in_a_test(jobs: Jobs) -> None:
    assert_type(jobs.run(until=timedelta(hours=1)), list[Job])
    assert_type(jobs.assert_enqueued(charge, [1]), list[Job])
    with jobs.assert_enqueues(charge) as found:
        assert_type(found, list[Job])
    jobs.run(until=60)  # refused: Argument "until" to "run" of "Jobs" has incompatible type "int"


async def caller(any_task: Task[..., object]) -> None:
    assert_type(bare(1), str)
    assert_type(charge(1, kind="half"), int)
    assert_type(await waits(1), int)
    assert_type(bare.enqueue(1), Job)
    assert_type(await charge.aenqueue(1, "half"), Job)
    assert_type(charge.enqueue_many([{"order_id": 1}]), list[Job])
    assert_type(tells.enqueue(order_id=1), Job)
    assert_type(charge.using(priority=1, run_after=timedelta(1)).using(unique_key="x").enqueue(1), Job)
    any_task.enqueue("anything", at=1)
    assert_type(await charge.aenqueue_many([{"order_id": 1}]), list[Job])
    assert_type(await current_job().afenced(written, 1), str)

    charge.enqueue("1")  # refused: Argument 1 to "enqueue" of "Task" has incompatible type "str"; expected "int"
    charge.enqueue(1, kind=2)  # refused: Argument "kind" to "enqueue" of "Task" has incompatible type "int"
    charge.enqueue()  # refused: Missing positional argument "order_id"
    charge.enqueue(1, sort="half")  # refused: Unexpected keyword argument "sort"
    charge("1")  # refused: incompatible type "str"; expected "int"
    await charge.aenqueue("1")  # refused: incompatible type "str"; expected "int"
    charge.using(priority=1).enqueue("1")  # refused: incompatible type "str"; expected "int"
    charge.using(priority="high")  # refused: Argument "priority" to "using" of "Task" has incompatible type "str"
    charge.using(run_after=60)  # refused: Argument "run_after" to "using" of "Task" has incompatible type "int"
    charge.using(queue="fast")  # refused: Unexpected keyword argument "queue" for "using" of "Task"
    await current_job().afenced(written, "1")  # refused: incompatible type "str"; expected "int"
    tells.enqueue(1, 2)  # refused: Too many arguments for "enqueue" of "Task"


@task(priority="high")  # refused: No overload variant of "task" matches argument type "str"
def one() -> None: ...


@task(prioriti=1)  # refused: Unexpected keyword argument "prioriti" for overloaded function "task"
def two() -> None: ...


@task(on_duplicate="ignore")  # refused: No overload variant of "task" matches argument type "str"
def three() -> None: ...


@task(takes_context=True, queue="fast")  # refused: Unexpected keyword argument "queue" for overloaded function "task"
def four(context: JobContext) -> None: ...


@task(takes_context=True)  # refused: expected "Callable[[JobContext], None]"
def five(order_id: int) -> None: ...
