"""Items to go through in batches, and the context of a job that does."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django_reliable_jobs import registry
from django_reliable_jobs.context import JobContext, StopFlag
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.models import Checkpoint
from django_reliable_jobs.processes import execution
from django_reliable_jobs.progress import Progress
from tests import tasks
from tests.claims import claim_one_as
from tests.models import Item


def some_items(count: int, *, first: int = 1) -> list[Item]:
    """Make items whose codes run against their ids; half of them on each of two shelves."""
    return Item.objects.bulk_create(
        [
            Item(
                code=f"{1_000_000 - number}",
                shelf=number % 2,
                place=number,
                price=Decimal(number) / 7 if number % 3 else None,
            )
            for number in range(first, first + count)
        ]
    )


def touched() -> list[int]:
    return list(Item.objects.order_by("pk").values_list("touched", flat=True))


def context_of(job: ClaimedJob, flag: StopFlag | None = None) -> JobContext:
    """Return what the task of a claimed job would see."""
    port = execution.port_of(registry.get(job.task), job, "default")
    return execution.context_of(job, flag or StopFlag(), "default", port, Progress())


def a_context(flag: StopFlag | None = None) -> JobContext:
    """Return the context of a new job that runs."""
    tasks.nothing.enqueue()
    return context_of(claim_one_as(1), flag)


def gone_through(context: JobContext, source: Any, **options: Any) -> list[list[Any]]:
    """Return the items of each batch."""
    result = []
    for batch in context.batches(source, **options):
        with batch:
            result.append(list(batch))
    return result


def state(name: str = "tests.Item") -> Any:
    """Return what the checkpoint of a loop says."""
    return Checkpoint.objects.values_list("value", flat=True).get(name=f"batches:{name}")
