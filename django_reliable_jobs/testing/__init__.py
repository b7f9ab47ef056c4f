"""For the tests of projects: run jobs and schedules in the test's own thread and transaction, and move the clock.

With pytest, the fixtures `jobs` and `jobs_inline` offer the same.
"""

from __future__ import annotations

from django_reliable_jobs.testing.assertions import assert_enqueued, assert_enqueues
from django_reliable_jobs.testing.immediately import inline
from django_reliable_jobs.testing.moments import at
from django_reliable_jobs.testing.running import run_jobs
from django_reliable_jobs.testing.ticking import tick
from django_reliable_jobs.testing.workflows import run_workflow

__all__ = ["assert_enqueued", "assert_enqueues", "at", "inline", "run_jobs", "run_workflow", "tick"]
