"""Scheduled and background jobs for Django on the PostgreSQL that the project already runs.

The names below may be imported from any module, at any time: they need no configured settings and no loaded models.
"""

from __future__ import annotations

from django_reliable_jobs.context import JobContext, current_job
from django_reliable_jobs.declared_schedules import scheduled
from django_reliable_jobs.exceptions import Cancel, Fail, Retry, Snooze
from django_reliable_jobs.limits import Concurrency, Rate
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.registry import Task, task
from django_reliable_jobs.retry import exponential

__version__ = "0.1.0"

__all__ = [
    "Cancel",
    "Concurrency",
    "Cron",
    "Every",
    "Fail",
    "JobContext",
    "Once",
    "Rate",
    "Retry",
    "Snooze",
    "Task",
    "current_job",
    "exponential",
    "scheduled",
    "task",
]
