"""Jobs that may fail, for the tests that look at what is recorded of it."""

from __future__ import annotations

from typing import Any

from django_reliable_jobs import testing
from django_reliable_jobs.models import Job


def run_jobs(**options: Any) -> list[Job]:
    """Run jobs as `testing.run_jobs` does, and leave their errors in their rows."""
    return testing.run_jobs(raise_errors=False, **options)
