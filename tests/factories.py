"""Rows in the states that tests start from; each factory is named after the state it yields."""

from __future__ import annotations

import itertools
import os
from datetime import timedelta
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from django_reliable_jobs.models import Attempt, CancelRequest, Job, Queue, Worker

_numbers = itertools.count(1_000_001)


def ago(**span: float) -> Any:
    return factory.LazyFunction(lambda: timezone.now() - timedelta(**span))


def ahead(**span: float) -> Any:
    return factory.LazyFunction(lambda: timezone.now() + timedelta(**span))


class WorkerFactory(DjangoModelFactory):
    """A busy worker that serves all queues, its lease fresh."""

    class Meta:
        model = Worker

    id = factory.LazyFunction(lambda: next(_numbers))
    host = "host"
    pid = factory.LazyFunction(os.getpid)
    threads = 4
    started_at = ago(minutes=5)
    heartbeat_at = ago(seconds=1)
    expires_at = ahead(seconds=30)


class IdleWorkerFactory(WorkerFactory):
    """A worker that sleeps and wants to be notified."""

    is_idle = True


class ExpiredWorkerFactory(WorkerFactory):
    """A worker whose lease ran out; nobody has noticed yet."""

    heartbeat_at = ago(seconds=40)
    expires_at = ago(seconds=10)


class LostWorkerFactory(ExpiredWorkerFactory):
    """A worker that was declared lost."""

    lost_at = ago(seconds=5)


class ReadyJobFactory(DjangoModelFactory):
    """A job that waits for a worker since a minute."""

    class Meta:
        model = Job
        skip_postgeneration_save = True

    task = "tests.tasks.nothing"
    args = factory.LazyFunction(list)
    kwargs = factory.LazyFunction(dict)
    status = Job.Status.READY
    max_attempts = 5
    created_at = ago(minutes=10)
    run_after = ago(minutes=1)


class ScheduledJobFactory(ReadyJobFactory):
    """A job that is due in an hour."""

    status = Job.Status.SCHEDULED
    run_after = ahead(hours=1)


class RetryingJobFactory(ScheduledJobFactory):
    """A job that failed once and is due again in an hour."""

    attempt = 1
    claims = 1
    token = factory.LazyFunction(lambda: next(_numbers))
    worker_id = factory.LazyFunction(lambda: next(_numbers))
    first_started_at = ago(seconds=30)
    started_at = ago(seconds=30)
    failure = factory.RelatedFactory("tests.factories.FailedAttemptFactory", factory_related_name="job")


class RunningJobFactory(ReadyJobFactory):
    """A job in its first attempt, under a live worker of its own."""

    status = Job.Status.RUNNING
    attempt = 1
    claims = 1
    token = factory.LazyFunction(lambda: next(_numbers))
    worker_id = factory.LazyFunction(lambda: WorkerFactory().pk)
    first_started_at = ago(seconds=30)
    started_at = ago(seconds=30)


class WaitingJobFactory(ReadyJobFactory):
    """A job that gave its worker back until something happens."""

    status = Job.Status.WAITING
    claims = 1
    first_started_at = ago(seconds=30)
    started_at = ago(seconds=30)


class SucceededJobFactory(RunningJobFactory):
    """A job that ended well a second ago."""

    status = Job.Status.SUCCEEDED
    worker_id = factory.LazyFunction(lambda: next(_numbers))  # of a worker that is gone
    finished_at = ago(seconds=1)
    result = None


class DeadJobFactory(SucceededJobFactory):
    """A job that used up its attempts a second ago; only the last one's row is kept."""

    status = Job.Status.DEAD
    attempt = 5
    claims = 5
    reason = "ValueError: it broke"
    failure = factory.RelatedFactory("tests.factories.FailedAttemptFactory", factory_related_name="job")


class CancelledJobFactory(ReadyJobFactory):
    """A job that was cancelled a second ago, before it started."""

    status = Job.Status.CANCELLED
    finished_at = ago(seconds=1)
    reason = "no longer wanted"


class FailedAttemptFactory(DjangoModelFactory):
    """The last attempt of a job, which raised."""

    class Meta:
        model = Attempt

    job = factory.SubFactory(RetryingJobFactory, failure=None)
    number = factory.SelfAttribute("job.attempt")
    claim = factory.SelfAttribute("job.claims")
    outcome = Attempt.Outcome.FAILED
    started_at = ago(seconds=30)
    finished_at = ago(seconds=1)
    worker = "host:1"
    error_class = "builtins.ValueError"
    error_message = "it broke"
    traceback = "Traceback (most recent call last):\n…\nValueError: it broke\n"


class CancelRequestFactory(DjangoModelFactory):
    """The wish, not answered yet, that a running job ends."""

    class Meta:
        model = CancelRequest

    job = factory.SubFactory(RunningJobFactory)
    reason = "no longer wanted"


class PausedQueueFactory(DjangoModelFactory):
    """A queue that was paused until further notice."""

    class Meta:
        model = Queue

    name = factory.Sequence(lambda number: f"queue-{number}")
    paused_at = ago(minutes=1)
