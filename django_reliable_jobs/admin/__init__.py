"""Jobs and workers in the Django admin to look at; schedules, limits and pauses of queues to change.

Rows are changed by the functions of `engine` alone.
"""

from __future__ import annotations

from django_reliable_jobs.admin import alerts, fleet, jobs, limits, queues, schedules

__all__ = ["alerts", "fleet", "jobs", "limits", "queues", "schedules"]
