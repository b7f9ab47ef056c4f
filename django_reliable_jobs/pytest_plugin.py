"""Fixtures for pytest with pytest-django: `jobs`, and `jobs_inline` for tests that want no queue in between.

    def test_a_new_order_is_confirmed(client, jobs, mailoutbox):
        client.post("/orders/", {"sku": "A1"})
        jobs.run()
        assert len(mailoutbox) == 1

pytest loads this module wherever the package is installed, so that it imports nothing of Django until a fixture is
used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from django_reliable_jobs.models import Job


class Jobs:
    """What `django_reliable_jobs.testing` offers, at hand in a test. See there."""

    def run(
        self,
        *,
        until: timedelta | datetime | str | None = None,
        max_jobs: int = 1000,
        raise_errors: bool = True,
        using: str | None = None,
    ) -> list[Job]:
        """Run the jobs that are due, and return them; what they raise is raised here. See `testing.run_jobs`."""
        from django_reliable_jobs.testing import run_jobs

        return run_jobs(until=until, max_jobs=max_jobs, raise_errors=raise_errors, using=using)

    def run_workflow(
        self, job: Job, *, until: str | None = None, raise_errors: bool = True, max_jobs: int = 1000
    ) -> Job:
        """Run a job of steps to its end, to an event that it waits for, or to a step. See `testing.run_workflow`."""
        from django_reliable_jobs.testing import run_workflow

        return run_workflow(job, until=until, raise_errors=raise_errors, max_jobs=max_jobs)

    def tick(self, *, at: datetime | str | None = None, using: str | None = None) -> list[Job]:
        """Make the jobs that schedules have due, and return them. See `testing.tick`."""
        from django_reliable_jobs.testing import tick

        return tick(at=at, using=using)

    def at(self, moment: datetime | str, tz: tzinfo | str | None = None) -> AbstractContextManager[None]:
        """Take a moment for now inside a block. See `testing.at`."""
        from django_reliable_jobs.testing import at

        return at(moment, tz)

    def assert_enqueued(
        self, task: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **wanted: Any
    ) -> list[Job]:
        """Assert that a job was enqueued, and return such jobs. See `testing.assert_enqueued`."""
        from django_reliable_jobs.testing import assert_enqueued

        return assert_enqueued(task, args, kwargs, **wanted)

    def assert_enqueues(
        self, task: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **wanted: Any
    ) -> AbstractContextManager[list[Job]]:
        """Assert that a block enqueues a job. See `testing.assert_enqueues`."""
        from django_reliable_jobs.testing import assert_enqueues

        return assert_enqueues(task, args, kwargs, **wanted)


@pytest.fixture
def jobs(db: None) -> Jobs:
    """Jobs wait in the test's database until `jobs.run()`."""
    return Jobs()


@pytest.fixture
def jobs_inline(db: None) -> Iterator[Jobs]:
    """Jobs run the moment they are enqueued, in the caller's thread and transaction. See `testing.inline`."""
    from django_reliable_jobs.testing import inline

    with inline():
        yield Jobs()
