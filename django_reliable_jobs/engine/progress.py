"""What running jobs say of how far they are, in a table of its own: whoever locks a job holds up no heartbeat.

Not fenced: a row belongs to one claim by its token, and readers look under the token that the job's row has. What a
replaced attempt writes is never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_reliable_jobs import batches
from django_reliable_jobs.arguments import without_bad_characters
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.models import Checkpoint, Job, Progress

LOCK_LEASES = 0.05  # of a lease, to wait for a lock: somebody who holds the table may cost a report, but no lease

WRITE = """
INSERT INTO django_reliable_jobs_progress AS progress
       (token, job_id, run, claim, done, total, skipped, rate, message, told_at)
SELECT given.token, job.id, given.run, given.claim, given.done, given.total, given.skipped, given.rate, given.message,
       clock_timestamp()
  FROM unnest(%(tokens)s::bigint[], %(ids)s::bigint[], %(runs)s::smallint[], %(claims)s::int[], %(done)s::bigint[],
              %(totals)s::bigint[], %(skipped)s::bigint[], %(rates)s::float8[], %(messages)s::text[])
       AS given(token, id, run, claim, done, total, skipped, rate, message)
  JOIN django_reliable_jobs_job job ON job.id = given.id
 ORDER BY given.token
    ON CONFLICT (token)
    DO UPDATE SET done = excluded.done, total = excluded.total, skipped = excluded.skipped, rate = excluded.rate,
                  message = excluded.message, told_at = excluded.told_at
"""


class Report(NamedTuple):
    """How far one attempt has come."""

    token: int
    job_id: int
    run: int
    claim: int
    done: int
    total: int | None
    skipped: int
    rate: float | None
    message: str


def write(using: str, reports: Sequence[Report]) -> None:
    """Write what these attempts have said of themselves, all in one statement."""
    with short_transaction(using, lock_timeout=settings.LEASE_SECONDS * LOCK_LEASES) as cursor:
        cursor.execute(
            WRITE,
            {
                "tokens": [each.token for each in reports],
                "ids": [each.job_id for each in reports],
                "runs": [each.run for each in reports],
                "claims": [each.claim for each in reports],
                "done": [each.done for each in reports],
                "totals": [each.total for each in reports],
                "skipped": [each.skipped for each in reports],
                "rates": [each.rate for each in reports],
                "messages": [without_bad_characters(each.message) for each in reports],
            },
        )


def of_job(using: str, job: Job) -> Progress | None:
    """Return how far the job's last attempt has come, or had when it ended; None if it has not said."""
    if job.token is None:
        return None
    return Progress.objects.using(using).filter(token=job.token, job_id=job.pk, run=job.run).first()


def of_claims(using: str, job_id: int, claims: Sequence[int]) -> dict[int, Progress]:
    """Return how far each of these attempts had come, by claim."""
    rows = Progress.objects.using(using).filter(job_id=job_id, claim__in=list(claims))
    return {row.claim: row for row in rows}


@dataclass(frozen=True)
class Loop:
    """How far `context.batches()` has come in the present run of a job, by its checkpoint."""

    name: str
    done: int
    total: int | None
    skipped: int
    after: Any  # the cursor
    saved_at: datetime
    faults: list[dict[str, str]]  # the first of the skipped items: what, and why


@dataclass(frozen=True)
class Standing:
    """How far a job is: what its last attempt said, and what is kept for the next one."""

    progress: Progress | None
    loops: list[Loop]
    checkpoint: str | None  # the name of the one that was saved last in this run
    saved_at: datetime | None


def standing_of(using: str, job: Job) -> Standing:
    """Return how far a job is, or was when it ended."""
    saved = Checkpoint.objects.using(using).filter(job_id=job.pk, run=job.run)
    last = saved.order_by("-saved_at").values_list("name", "saved_at").first() or (None, None)
    return Standing(of_job(using, job), _loops(saved.filter(name__startswith=batches.PREFIX)), *last)


def _loops(saved: Any) -> list[Loop]:
    rows = {row.name: row for row in saved.order_by("saved_at")}
    loops = []
    for name, row in rows.items():
        if not isinstance(row.value, dict) or "after" not in row.value:
            continue
        faults = rows.get(name + batches.SKIPPED)
        told: dict[str, Any] = {key: row.value.get(key) for key in ("done", "total", "skipped", "after")}
        loops.append(
            Loop(
                name=name.removeprefix(batches.PREFIX),
                **told,
                saved_at=row.saved_at,
                faults=[] if faults is None else faults.value,
            )
        )
    return loops
