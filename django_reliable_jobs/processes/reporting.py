"""Writing what running jobs say of how far they are."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django.db import Error as DatabaseError

from django_reliable_jobs.engine import progress
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.progress import Report
from django_reliable_jobs.processes.errors import sqlstates_of
from django_reliable_jobs.progress import Progress, in_words

logger = logging.getLogger("django_reliable_jobs")

LOCK_NOT_AVAILABLE = "55P03"


def write_progress(using: str, jobs: Iterable[tuple[ClaimedJob, Progress]]) -> None:
    """Write what these jobs have said since it was written last, in one statement.

    Somebody who holds the table costs the report, and nothing else; other database errors are raised.
    """
    reports, told = [], []
    for job, said_by in jobs:
        if (news := said_by.news()) is not None:
            said, rate = news
            reports.append(
                Report(job.token, job.id, job.run, job.claims, said.done, said.total, said.skipped, rate, said.message)
            )
            told.append(said_by)
    if not reports:
        return
    try:
        progress.write(using, reports)
    except DatabaseError as error:
        for each in told:
            each.not_written()
        if LOCK_NOT_AVAILABLE not in sqlstates_of(error):
            raise
        logger.warning("progress of %s jobs is not written: somebody locks its table", len(reports))


def as_text(said_by: Progress) -> str:
    """Return how far a job has come, for a line of the log; empty if it has not said."""
    said = said_by.said
    return "" if said is None else f", {in_words(said.done, said.total, said.skipped)}"
