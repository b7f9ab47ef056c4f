"""Which job a log record belongs to.

Workers put the filter `JobFields` on every handler that the project's LOGGING has made, so that each record that a job
makes, in whatever logger, has the attributes `job_id`, `task` and `attempt`; outside jobs they are None. Where a format
names them and web processes use it too, name the filter in LOGGING:

    "filters": {"job": {"()": "django_reliable_jobs.logs.JobFields"}},
    "handlers": {"terminal": {..., "filters": ["job"]}},
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

from django_reliable_jobs import context

FIELDS = ("job_id", "task", "attempt")


class Job(Protocol):
    """What is told of a job."""

    @property
    def id(self) -> int: ...
    @property
    def task(self) -> str: ...
    @property
    def attempt(self) -> int: ...


_job: ContextVar[Job | None] = ContextVar("reliable_jobs_log", default=None)

# enter(job): let the records of the current context be those of this job, before its task begins and after it has
# ended. Called for every job, so that it is nothing more than this.
enter = _job.set


class JobFields(logging.Filter):
    """Adds to each record the job in which it was made; what the record has of its own stays."""

    def filter(self, record: logging.LogRecord) -> bool:
        job = _job.get()
        values = context.identity() or (None, None, None) if job is None else (job.id, job.task, job.attempt)
        for name, value in zip(FIELDS, values, strict=True):
            record.__dict__.setdefault(name, value)
        return True


def mark_handlers() -> None:
    """Put the filter on every handler that there is; called once, when a worker starts."""
    for handler in {id(each): each for each in _handlers()}.values():
        if not any(isinstance(each, JobFields) for each in handler.filters):
            handler.addFilter(JobFields())


def _handlers() -> Iterator[logging.Handler]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for each in loggers:
        if isinstance(each, logging.Logger):
            yield from each.handlers
