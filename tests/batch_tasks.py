"""Long jobs: tasks that go through rows and items in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.db import transaction
from django.db.models import F

from django_reliable_jobs import JobContext, current_job, exponential, task
from django_reliable_jobs.batches import Batch
from tests.interrupted_tasks import at_once, stand_at_gate
from tests.interrupted_tasks import touch as leave_word
from tests.models import Effect, Item, Tally


def numbers(most: int) -> Callable[[Any], Iterable[tuple[int, int]]]:
    """Return a source of the numbers from 1 on; each is its own cursor."""

    def after(cursor: int | None) -> Iterator[tuple[int, int]]:
        for number in range((cursor or 0) + 1, most + 1):
            yield number, number

    return after


@task(max_attempts=1000, backoff=at_once)
def touch_all(size: int = 500, pause: float = 0) -> dict[str, int]:
    """Count in each row that it was touched; twice would show."""
    batches = current_job().batches(Tally.objects.all(), size=size)
    for batch in batches:
        with batch:
            batch.rows.update(touched=F("touched") + 1)
        time.sleep(pause)
    return {"done": batches.done, "skipped": batches.skipped}


@task(max_attempts=3, backoff=at_once)
def touch_until(failing_batch: int, size: int = 10) -> int:
    """Fail in the first attempt when so many batches are done."""
    job = current_job()
    for number, batch in enumerate(job.batches(Item.objects.all(), size=size)):
        with batch:
            touch(batch)
            if job.attempt == 1 and number == failing_batch:
                raise ValueError("it broke")
    return job.attempt


def touch(batch: Batch[Item]) -> None:
    for item in batch:
        item.touched += 1
        item.save(update_fields=["touched"])


@task(max_attempts=1)
def skip_odd(size: int = 10) -> dict[str, int]:
    """Skip the items on odd places; their writes are undone, those of the others stay."""
    batches = current_job().batches(Item.objects.all(), size=size)
    for batch in batches:
        with batch:
            for item in batch:
                try:
                    with transaction.atomic():
                        Item.objects.filter(pk=item.pk).update(touched=F("touched") + 1)
                        if item.place % 2:
                            raise ValueError(f"place {item.place}")
                except ValueError as error:
                    batch.skip(item, error)
    return {"done": batches.done, "skipped": batches.skipped}


@task(max_attempts=1)
def in_portions(max_run_time: float = 0, size: int = 10) -> int:
    job = current_job()
    for batch in job.batches(Item.objects.all(), size=size, max_run_time=max_run_time):
        with batch:
            touch(batch)
    return job.claims


@task(max_attempts=3, backoff=at_once)
def touch_at_gate(folder: str, when: str, size: int = 10) -> str:
    """The first claim stands at the gate inside its second batch, before or after its writes."""
    job = current_job()
    try:
        for number, batch in enumerate(job.batches(Tally.objects.all(), size=size)):
            with batch:
                is_gate = job.claims == 1 and number == 1
                if is_gate and when == "before":
                    stand_at_gate(folder)
                batch.rows.update(touched=F("touched") + 1)
                if is_gate and when == "after":
                    stand_at_gate(folder)
    except BaseException as error:
        leave_word(folder, f"claim {job.claims} caught", type(error).__name__)
        raise
    return f"claim {job.claims}"


@task(takes_context=True, max_attempts=2, backoff=exponential(first=0, maximum=0, jitter=0))
def count_numbers(context: JobContext, most: int, size: int = 10, failing: int = -1) -> int:
    """Leave an effect per number; fail in the first attempt at one of them."""
    batches = context.batches(numbers(most), size=size, name="numbers", total=most)
    for batch in batches:
        with batch:
            for number in batch:
                Effect.objects.create(name=str(number), job_id=context.id, attempt=context.attempt)
                if context.attempt == 1 and number == failing:
                    raise ValueError("it broke")
    return batches.done


@task(max_attempts=1)
def tell(done: int, total: int | None = None, message: str = "") -> None:
    current_job().progress(done, total, message)


@task(max_attempts=3, backoff=at_once)
def tell_and_fail(done: int) -> None:
    job = current_job()
    job.progress(done * job.attempt, 100)
    raise ValueError("it broke")


@task(atomic=True, max_attempts=1)
def tell_atomically(done: int) -> None:
    current_job().progress(done, 100)


@task(atomic=True, max_attempts=1)
def batches_in_an_atomic_task() -> None:
    for batch in current_job().batches(Item.objects.all()):
        with batch:
            pass


@task(max_attempts=3)
def tell_until_stopped(limit: float = 60) -> None:
    job, begin = current_job(), time.monotonic()
    done = 0
    while time.monotonic() - begin < limit:
        done += 1
        job.progress(done, 1_000_000, f"at {done}")
        job.raise_if_stopping()
        time.sleep(0.001)
