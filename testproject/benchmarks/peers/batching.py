"""A long job: through many rows in batches, by `context.batches()` and by a loop written by hand."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import F

from django_reliable_jobs import current_job, task
from django_reliable_jobs.models import Job
from django_reliable_jobs.testing import run_jobs
from testproject.benchmarks.peers.driver import Stopwatch
from testproject.shop.models import OrderLine

SIZE = 1000


@task(name="benchmark.batches")
def by_batches(writes: bool) -> dict[str, float]:
    """Go through the rows as the docs say; return how long it took."""
    watch, batches = Stopwatch(), current_job().batches(OrderLine.objects.all(), size=SIZE)
    for batch in batches:
        with batch:
            for line in batch:
                line.quantity += 1
            if writes:
                batch.rows.update(quantity=F("quantity") + 1)
    return watch.result(batches.done)


@task(name="benchmark.batches_by_hand")
def by_hand(writes: bool) -> dict[str, float]:
    """Do the same with a cursor of one's own."""
    watch, job, done = Stopwatch(), current_job(), 0
    after = job.load_checkpoint("cursor", 0)
    while True:
        job.raise_if_stopping()
        with transaction.atomic():
            lines = list(OrderLine.objects.filter(pk__gt=after).order_by("pk")[:SIZE])
            if not lines:
                break
            for line in lines:
                line.quantity += 1
            if writes:
                OrderLine.objects.filter(pk__gt=after, pk__lte=lines[-1].pk).update(quantity=F("quantity") + 1)
            after = lines[-1].pk
            job.save_checkpoint("cursor", after)
        done += len(lines)
    return watch.result(done)


def batches(way: str, writes: bool) -> Any:
    """Run the job here, as a worker would; return how long its loop took."""
    job = {"batches": by_batches, "by hand": by_hand}[way].enqueue(writes)
    run_jobs()
    return Job.objects.get(pk=job.pk).result
