"""The factories yield what their names say, in rows that the table's constraints accept."""

from __future__ import annotations

import pytest

from django_reliable_jobs.models import Job
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (factories.ReadyJobFactory, Job.Status.READY),
        (factories.ScheduledJobFactory, Job.Status.SCHEDULED),
        (factories.RetryingJobFactory, Job.Status.SCHEDULED),
        (factories.RunningJobFactory, Job.Status.RUNNING),
        (factories.WaitingJobFactory, Job.Status.WAITING),
        (factories.SucceededJobFactory, Job.Status.SUCCEEDED),
        (factories.DeadJobFactory, Job.Status.DEAD),
        (factories.CancelledJobFactory, Job.Status.CANCELLED),
    ],
)
def test_a_job_factory_yields_the_status_of_its_name(make: type[factories.ReadyJobFactory], status: str) -> None:
    one, other = make(), make()
    assert one.pk != other.pk
    one.refresh_from_db()
    assert one.status == status
    assert (one.attempts.count() > 0) == (make in (factories.RetryingJobFactory, factories.DeadJobFactory))


def test_a_worker_factory_yields_the_state_of_its_name() -> None:
    live, idle = factories.WorkerFactory(), factories.IdleWorkerFactory()
    expired, lost = factories.ExpiredWorkerFactory(), factories.LostWorkerFactory()
    assert (live.is_idle, idle.is_idle) == (False, True)
    assert live.expires_at > live.heartbeat_at > expired.expires_at
    assert (live.lost_at, expired.lost_at) == (None, None)
    assert lost.lost_at > lost.expires_at


def test_the_other_rows() -> None:
    assert factories.FailedAttemptFactory().job.status == "SCHEDULED"
    assert factories.CancelRequestFactory().job.status == "RUNNING"
    assert factories.PausedQueueFactory().paused_at
