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

from django_reliable_jobs import context

FIELDS = ("job_id", "task", "attempt")

_job: ContextVar[tuple[int, str, int] | None] = ContextVar("reliable_jobs_log", default=None)


class JobFields(logging.Filter):
    """Adds to each record the job in which it was made; what the record has of its own stays."""

    def filter(self, record: logging.LogRecord) -> bool:
        values = _job.get() or context.identity() or (None, None, None)
        for name, value in zip(FIELDS, values, strict=True):
            record.__dict__.setdefault(name, value)
        return True


def enter(job_id: int, task: str, attempt: int) -> None:
    """Let the records of the current context be those of a job, before its task begins and after it has ended."""
    _job.set((job_id, task, attempt))


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
