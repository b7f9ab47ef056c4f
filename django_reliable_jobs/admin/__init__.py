"""Jobs, queues and workers in the Django admin to look at, schedules to change.

Rows are changed by the functions of `engine` alone.
"""

from __future__ import annotations

from django_reliable_jobs.admin import fleet, jobs, schedules

__all__ = ["fleet", "jobs", "schedules"]
