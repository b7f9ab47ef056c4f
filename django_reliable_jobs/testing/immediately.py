"""Jobs that run the moment they are enqueued."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django_reliable_jobs.models import Job
from django_reliable_jobs.placement import telling
from django_reliable_jobs.testing.running import run_jobs

DEEPEST = 30  # levels of jobs that enqueue jobs


@contextmanager
def inline(*, raise_errors: bool = True, max_jobs: int = 1000) -> Iterator[None]:
    """Run jobs inside the block as soon as they are enqueued, and whatever else is ready then, as `run_jobs()` does.

    The whole way is gone: the arguments become JSON and come back, the row is written, claimed and ended. So the caller
    gets back a job that has ended, and an error of the job, unless asked otherwise. A job that is due later waits.
    """
    depth = 0

    def run(jobs: Sequence[Job]) -> None:
        nonlocal depth
        if depth >= DEEPEST:
            raise RuntimeError(f"{DEEPEST} jobs in each other, each enqueued by the last; does one enqueue itself?")
        depth += 1
        try:
            for using in {job._state.db for job in jobs}:
                run_jobs(using=using, raise_errors=raise_errors, max_jobs=max_jobs)
        finally:
            depth -= 1
        for job in jobs:
            job.refresh_from_db()

    with telling(run):
        yield
