"""Every exception of the package.

Exception
├── ReliableJobsError
│   ├── InvalidTask            (TypeError)    a declaration that can't hold
│   ├── InvalidArguments       (TypeError)    arguments that a job can't carry
│   ├── InvalidRecurrence      (ValueError)   a cron expression, zone or rule that can't hold
│   ├── InvalidSchedule        (ValueError)   a schedule that can't hold
│   ├── UnknownTask            (LookupError)
│   ├── UnknownSchedule        (LookupError)
│   ├── DuplicateJob
│   ├── InvalidResult          (TypeError)
│   ├── InvalidCheckpoint      (TypeError)
│   ├── InvalidBatches         (ValueError)   what can't be gone through batch by batch
│   ├── InvalidStep            (TypeError)    a step, sleep or wait that can't hold, or not where it stands
│   ├── BatchFinished
│   ├── KeptFailure                           kept in the history of a job, and raised again in every replay
│   │   ├── StepFailed, ChildFailed
│   │   └── EventTimeout       (TimeoutError)
│   └── JobFailed                             what Job.wait() raises
└── Ending                                    raised by a task to choose its ending
    ├── Retry, Snooze
    └── Cancel, Fail
BaseException
└── Interruption               ends an attempt from outside; `except Exception` lets it through
    ├── LeaseLost
    ├── RunTimeOver
    └── Stopping
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")


class ReliableJobsError(Exception):
    """The root of what this package raises to report a fault."""


class InvalidTask(ReliableJobsError, TypeError):
    """A task can't be declared like this."""


class InvalidArguments(ReliableJobsError, TypeError):
    """A job can't be enqueued with these arguments; nothing was inserted."""


class InvalidRecurrence(ReliableJobsError, ValueError):
    """A recurrence can't be declared like this."""


class InvalidSchedule(ReliableJobsError, ValueError):
    """A schedule can't be like this. `field` names what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class UnknownSchedule(ReliableJobsError, LookupError):
    """There is no schedule of this name or id."""


class UnknownTask(ReliableJobsError, LookupError):
    """No task is declared under this name."""


class DuplicateJob(ReliableJobsError):
    """A live job holds the same unique key. `job` is that job; None if both are in one call of `enqueue_many`."""

    def __init__(self, job: Any, message: str = "") -> None:
        super().__init__(message or f"job {job.pk} of task {job.task} holds the same unique key and has not ended")
        self.job = job


class InvalidResult(ReliableJobsError, TypeError):
    """A task returned what can't be stored as JSON."""


class InvalidCheckpoint(ReliableJobsError, TypeError):
    """A checkpoint can't be stored like this; the earlier one stays."""


class InvalidBatches(ReliableJobsError, ValueError):
    """A job can't go through this batch by batch, each row exactly once. A later attempt could not either."""


class InvalidStep(ReliableJobsError, TypeError):
    """A step, sleep or wait can't be asked for like this, or not here."""


class KeptFailure(ReliableJobsError):
    """Kept in the history of a job, so that every replay raises it again. If it leaves the task, the job ends."""


class StepFailed(KeptFailure):
    """A step used up its tries. `name` is the step's; `error` what its last try raised, as text."""

    def __init__(self, name: str, tries: int, error: str) -> None:
        super().__init__(f"the step {name!r} failed after {tries} {'try' if tries == 1 else 'tries'}: {error}")
        self.name = name
        self.tries = tries
        self.error = error


class EventTimeout(KeptFailure, TimeoutError):
    """An event did not come in time. `name` is the event's."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the event {name!r} did not come in time")
        self.name = name


class ChildFailed(KeptFailure):
    """A child that was waited for ended without success. `failures` are up to some twenty: job, status, reason.

    `job` is None where the rows of several were deleted: their ids are not known.
    """

    def __init__(self, failures: list[dict[str, Any]]) -> None:
        told = "; ".join(
            f"{'some' if each['job'] is None else 'job {job}'.format(**each)} ended {each['status']}: {each['reason']}"
            for each in failures[:3]
        )
        super().__init__(f"a child failed: {told}{'; …' if len(failures) > 3 else ''}")
        self.failures = failures


class BatchFinished(ReliableJobsError):
    """The jobs of a batch have all ended: it takes no more."""


class JobFailed(ReliableJobsError):
    """The job that was waited for ended without success. `job` is its row."""

    def __init__(self, job: Any) -> None:
        super().__init__(f"job {job.pk} of task {job.task} ended {job.status}: {job.reason or 'no reason recorded'}")
        self.job = job


class Ending(Exception):
    """Raised inside a task to choose how its attempt ends. `reason` is kept with the attempt."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)


def _checked(name: str, after: T) -> T:
    if isinstance(after, datetime) and after.utcoffset() is None:
        raise ValueError(
            f"{name}({after.isoformat()}) does not say in which time zone: give it django.utils.timezone.make_aware(…)"
            " of that moment, or a timedelta from now"
        )
    return after


class Retry(Ending):
    """Try again after `after` (seconds, timedelta or aware datetime; None: the task's backoff). Uses an attempt."""

    def __init__(self, after: float | timedelta | datetime | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.after = _checked(type(self).__name__, after)


class Snooze(Ending):
    """Run again after `after` (seconds, timedelta or aware datetime). Uses no attempt."""

    def __init__(self, after: float | timedelta | datetime, reason: str = "") -> None:
        super().__init__(reason)
        self.after = _checked(type(self).__name__, after)


class Cancel(Ending):
    """End the job as CANCELLED."""


class Fail(Ending):
    """End the job as DEAD now, whatever attempts are left."""


class Interruption(BaseException):
    """Ends the running attempt from outside. Not an Exception, so that a task's own handlers let it pass."""


class LeaseLost(Interruption):
    """This attempt was replaced: it can write nothing more."""


class JobTimeout(Interruption):
    """The attempt ran longer than its task's `timeout`. It counts as a failure."""


class RunTimeOver(Interruption):
    """The attempt has run for its `max_run_time`: it ends between two batches, and the job goes on later."""


class Stopping(Interruption):
    """The worker is stopping, or the job was asked to cancel: the attempt ends here, at a safe point."""


class Suspension(Interruption):
    """The job gives its worker back: it waits, or a step is tried again later. Raised by steps, sleeps and waits."""

    def __init__(self, reason: str, *, delay: float, is_waiting: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay = delay  # seconds from now
        self.is_waiting = is_waiting


class HistoryMismatch(Interruption):
    """The code asks for other steps than the history of the job has: it is put back until other code is deployed."""
