"""What a kind of work is made of, and what its tasks share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from django_reliable_jobs import current_job
from django_reliable_jobs.models import Job
from testproject.chaos.models import Effect


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of work.

    `enqueue` is called inside a transaction, perhaps one that rolls back, and returns the jobs that must exist if it
    commits. `forbidden` is the audit: a sentence per fault, with the SELECT that returns the ids of the jobs that show
    it; `jobs` and `effects` in it are those of this kind. `meddle`, if given, is called now and then in a transaction
    of its own.
    """

    name: str
    weight: int  # how often, beside the other kinds
    enqueue: Callable[[Random], Sequence[Job]]
    forbidden: Mapping[str, str]
    meddle: Callable[[Random], None] | None = None
    unreceipted: Sequence[str] = field(default=())  # tasks whose jobs the engine makes, so that they have no receipt


def leave(name: str, item: int | None = None) -> None:
    """Write an effect of the running attempt, in the current transaction if there is one."""
    job = current_job()
    Effect.objects.create(name=name, job_id=job.id, claim=job.claims, item=item, pid=os.getpid())


def spend(seconds: float) -> None:
    """Let time pass. `time.sleep` fails under libfaketime, which shifts the absolute moment that it waits for."""
    threading.Event().wait(seconds)


MUST_SUCCEED = {
    "a job with fifty attempts did not succeed": """
            SELECT id FROM jobs WHERE status <> 'SUCCEEDED' AND losses < 5""",
}
