"""Jobs that kill the process that runs them: the neighbours survive, and the history says what happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from random import Random

from django_reliable_jobs import current_job, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import Kind, leave


@task(max_attempts=50, backoff=exponential(first=0.2, maximum=2))
def explode(times: int) -> None:
    leave("begin")
    if current_job().claims <= times:
        os.kill(os.getpid(), signal.SIGKILL)


def enqueue(dice: Random) -> Sequence[Job]:
    return [explode.enqueue(1)]


KIND = Kind(
    name="poison",
    weight=1,
    enqueue=enqueue,
    forbidden={
        "a job that kills its first process did not succeed": """
            SELECT id FROM jobs WHERE status <> 'SUCCEEDED' AND losses < 5""",
        "the loss of a process that its own job killed is not recorded": """
            SELECT jobs.id FROM jobs JOIN effects ON effects.job_id = jobs.id AND effects.claim = 1
              WHERE NOT EXISTS (SELECT 1 FROM django_reliable_jobs_attempt lost
                                 WHERE lost.job_id = jobs.id AND lost.claim = 1)""",
    },
)
