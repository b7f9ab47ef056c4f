"""The scheduler of the tests."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime

from django_reliable_jobs.engine import tick as schedule_tick
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job
from django_reliable_jobs.testing import moments


def tick(*, at: datetime | str | None = None, using: str | None = None) -> list[Job]:
    """Decide what is due of all schedules, now or at the moment `at`, as a scheduler does; return the jobs made.

    The jobs are made, not run: run them with `run_jobs()`, inside `at(moment)` if the clock was moved.
    """
    using = using or default_database()
    made: list[int] = []
    with nullcontext() if at is None else moments.at(at):
        while (done := schedule_tick.tick(using)).due:
            made += done.jobs
    jobs = Job.objects.using(using).in_bulk(made)
    return [jobs[job_id] for job_id in made]
