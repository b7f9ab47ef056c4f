"""Tasks that fail and are tried again, ask for it, snooze, or use up their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django_reliable_jobs import Retry, Snooze, current_job, exponential, task
from django_reliable_jobs.models import Job
from testproject.chaos.kind import Kind, leave


@task(name="chaos.fail_until", max_attempts=50, backoff=exponential(first=0.1, factor=1.5, maximum=1))
def fail_until(attempt: int, ask: bool) -> None:
    leave("begin")
    if (now := current_job().attempt) < attempt:
        raise Retry(after=0.2, reason="asked to") if ask else ConnectionError(f"attempt {now}")


@task(name="chaos.snooze_until", max_attempts=50, backoff=exponential(first=0.2, maximum=2))
def snooze_until(claim: int) -> None:
    leave("begin")
    if current_job().claims < claim:
        raise Snooze(0.3, "not yet")


@task(name="chaos.bury", max_attempts=50, backoff=exponential(first=0.2, maximum=2))
def bury(job_id: int) -> None:
    """Made by the engine when a doomed job dies."""
    leave("begin")


@task(name="chaos.doomed", max_attempts=3, backoff=exponential(first=0.1, factor=1, maximum=0.1), on_dead=bury)
def doomed() -> None:
    leave("begin")
    raise ValueError("as always")


def enqueue(dice: Random) -> Sequence[Job]:
    match dice.randrange(4):
        case 0:
            return [doomed.enqueue()]
        case 1:
            return [snooze_until.enqueue(dice.randint(2, 4))]
    return [fail_until.enqueue(dice.randint(2, 5), dice.random() < 0.5)]


KIND = Kind(
    name="retrying",
    weight=10,
    enqueue=enqueue,
    unreceipted=[bury.name],
    forbidden={
        "a doomed job is not dead, or not after its third attempt": """
            SELECT id FROM jobs WHERE task = 'chaos.doomed' AND losses < 5
                 AND (status <> 'DEAD' OR attempt <> 3 OR 3 <> (
                   SELECT count(*) FROM django_reliable_jobs_attempt failed
                    WHERE failed.job_id = jobs.id AND outcome = 'failed'))""",
        "a doomed job was not buried exactly once": """
            SELECT jobs.id FROM jobs WHERE task = 'chaos.doomed' AND status = 'DEAD' AND 1 <> (
                SELECT count(*) FROM django_reliable_jobs_job burial
                 WHERE burial.task = 'chaos.bury' AND (burial.kwargs ->> 'job_id')::bigint = jobs.id)""",
        "a job that fails at first did not succeed, or too early": """
            SELECT id FROM jobs WHERE task = 'chaos.fail_until' AND losses < 5
                 AND (status <> 'SUCCEEDED' OR attempt < (args ->> 0)::int)""",
        "a job that snoozes at first did not succeed, or a snooze used an attempt": """
            SELECT id FROM jobs WHERE task = 'chaos.snooze_until' AND losses < 5
                 AND (status <> 'SUCCEEDED' OR claims < (args ->> 0)::int OR attempt <> 1 + (
                   SELECT count(*) FROM django_reliable_jobs_attempt failed
                    WHERE failed.job_id = jobs.id AND outcome = 'failed'))""",
    },
)
