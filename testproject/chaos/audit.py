"""What must be true of the tables after a run: sentences, and the SQL that finds the jobs that break them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from testproject.chaos.kind import Kind

MOST_NAMED = 20


class Cursor(Protocol):
    """The part of a cursor, Django's or psycopg's, that an audit needs."""

    def execute(self, query: str, params: Any = None) -> object: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True)
class Finding:
    """A promise that was not kept, and by which jobs."""

    kind: str
    sentence: str
    job_ids: tuple[int, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        more = len(self.job_ids) - MOST_NAMED
        named = ", ".join(str(job_id) for job_id in self.job_ids[:MOST_NAMED]) + (
            f" and {more} more" if more > 0 else ""
        )
        return (
            f"{self.kind}: {self.sentence}"
            + (f" [jobs {named}]" if named else "")
            + (f" {self.detail}" if self.detail else "")
        )


# `began`: the claims that left an effect. Each but the one that succeeded must have its row in the history.
_ALL_KINDS = """
WITH began AS (
    SELECT job_id, claim, min(at) AS first_at, max(at) AS last_at FROM chaos_effect GROUP BY job_id, claim
)
"""
_ONE_KIND = """
WITH jobs AS (
    SELECT job.* FROM django_reliable_jobs_job job
     WHERE job.id IN (SELECT receipt.job_id FROM chaos_receipt receipt WHERE receipt.kind = %(kind)s)
), effects AS (
    SELECT effect.* FROM chaos_effect effect JOIN jobs ON jobs.id = effect.job_id
)
"""

FORBIDDEN = {
    "a committed enqueue has no job": """
        SELECT receipt.job_id FROM chaos_receipt receipt WHERE NOT EXISTS (
            SELECT 1 FROM django_reliable_jobs_job job WHERE job.id = receipt.job_id)""",
    "a job exists whose enqueue was not committed": """
        SELECT job.id FROM django_reliable_jobs_job job
         WHERE job.schedule_id IS NULL AND job.task <> ALL(%(unreceipted)s) AND NOT EXISTS (
            SELECT 1 FROM chaos_receipt receipt WHERE receipt.job_id = job.id)""",
    "one job was made by two enqueues": """
        SELECT job_id FROM chaos_receipt WHERE created GROUP BY job_id HAVING count(*) > 1""",
    "there is an effect of a job that does not exist": """
        SELECT DISTINCT job_id FROM chaos_effect effect WHERE NOT EXISTS (
            SELECT 1 FROM django_reliable_jobs_job job WHERE job.id = effect.job_id)""",
    "a job has not ended": """
        SELECT id FROM django_reliable_jobs_job WHERE status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING')""",
    "a job is RUNNING and its worker is not on the list": """
        SELECT job.id FROM django_reliable_jobs_job job WHERE job.status = 'RUNNING' AND NOT EXISTS (
            SELECT 1 FROM django_reliable_jobs_worker worker WHERE worker.id = job.worker_id)""",
    "a request to cancel was never answered": """
            SELECT job_id FROM django_reliable_jobs_cancelrequest""",
    "a claim that began and did not succeed is missing in the history": """
            SELECT began.job_id FROM began JOIN django_reliable_jobs_job job ON job.id = began.job_id
          WHERE NOT (job.status = 'SUCCEEDED' AND job.claims = began.claim) AND NOT EXISTS (
                SELECT 1 FROM django_reliable_jobs_attempt attempt
                 WHERE attempt.job_id = began.job_id AND attempt.claim = began.claim)""",
    "an attempt wrote after the next one had begun, and was not lost": """
            SELECT one.job_id FROM (
           SELECT job_id, claim, last_at, lead(first_at) OVER (PARTITION BY job_id ORDER BY claim) AS next_at FROM began
         ) one WHERE one.last_at > one.next_at AND NOT EXISTS (
           SELECT 1 FROM django_reliable_jobs_attempt attempt
            WHERE attempt.job_id = one.job_id AND attempt.claim = one.claim AND attempt.outcome = 'lost')""",
    "the claim that succeeded wrote after the job had ended": """
        SELECT began.job_id FROM began JOIN django_reliable_jobs_job job ON job.id = began.job_id
         WHERE job.status = 'SUCCEEDED' AND job.claims = began.claim AND began.last_at > job.finished_at""",
    "the attempts used are not those of the history": """
        SELECT job.id FROM django_reliable_jobs_job job
          LEFT JOIN django_reliable_jobs_attempt attempt ON attempt.job_id = job.id
         WHERE job.max_attempts > 1
         GROUP BY job.id HAVING job.attempt <> (job.status = 'SUCCEEDED')::int
               + count(*) FILTER (WHERE attempt.outcome IN ('failed', 'cancelled'))""",
    "a job that may be started once has not used one attempt": """
        SELECT id FROM django_reliable_jobs_job
         WHERE max_attempts = 1 AND attempt <> (status IN ('SUCCEEDED', 'DEAD'))::int""",
    "the history has more claims than the job": """
        SELECT job.id FROM django_reliable_jobs_job job
          LEFT JOIN django_reliable_jobs_attempt attempt ON attempt.job_id = job.id
         GROUP BY job.id HAVING count(attempt.id) + (job.status = 'SUCCEEDED')::int > job.claims
                OR max(attempt.claim) > job.claims
                OR max(attempt.claim) FILTER (WHERE job.status = 'SUCCEEDED') = job.claims""",
    "a job is dead without a reason to be": """
        SELECT job.id FROM django_reliable_jobs_job job
         WHERE job.status = 'DEAD' AND job.attempt < job.max_attempts AND job.losses < 5""",
    "a succeeded job was never claimed": """
        SELECT id FROM django_reliable_jobs_job WHERE status = 'SUCCEEDED' AND (claims = 0 OR attempt = 0)""",
}


def audit(cursor: Cursor, kinds: Iterable[Kind]) -> list[Finding]:
    """Return every breach of what must hold in general and of what each kind of work promises."""
    kinds = list(kinds)
    unreceipted = [task for kind in kinds for task in kind.unreceipted]
    findings = _examine(cursor, "every kind", _ALL_KINDS, FORBIDDEN, {"unreceipted": unreceipted})
    for kind in kinds:
        findings += _examine(cursor, kind.name, _ONE_KIND, kind.forbidden, {"kind": kind.name})
    return findings


def _examine(
    cursor: Cursor, kind: str, prefix: str, forbidden: Mapping[str, str], parameters: Mapping[str, object]
) -> list[Finding]:
    findings = []
    for sentence, statement in forbidden.items():
        cursor.execute(prefix + statement, parameters)
        job_ids = tuple(sorted({row[0] for row in cursor.fetchall()}))
        if job_ids:
            findings.append(Finding(kind, sentence, job_ids))
    return findings


COUNTS = """
SELECT receipt.kind, count(DISTINCT job.id), count(DISTINCT job.id) FILTER (WHERE job.status = 'SUCCEEDED'),
       count(DISTINCT job.id) FILTER (WHERE job.status = 'DEAD'),
       count(DISTINCT job.id) FILTER (WHERE job.status = 'CANCELLED'),
       count(DISTINCT job.id) FILTER (WHERE job.claims > 1),
       count(DISTINCT job.id) FILTER (WHERE EXISTS (
           SELECT 1 FROM django_reliable_jobs_attempt attempt
            WHERE attempt.job_id = job.id AND attempt.outcome = 'lost'))
  FROM chaos_receipt receipt JOIN django_reliable_jobs_job job ON job.id = receipt.job_id
 GROUP BY receipt.kind ORDER BY receipt.kind
"""


def count_jobs(cursor: Cursor) -> dict[str, dict[str, int]]:
    """Return, for each kind of work, how its jobs ended and what they went through."""
    names = ("jobs", "succeeded", "dead", "cancelled", "claimed more than once", "lost a worker")
    cursor.execute(COUNTS)
    return {kind: dict(zip(names, counts, strict=True)) for kind, *counts in cursor.fetchall()}


def count_attempts(cursor: Cursor) -> dict[str, int]:
    """Return how many attempts of each outcome the history has; successes are jobs."""
    cursor.execute("SELECT outcome, count(*) FROM django_reliable_jobs_attempt GROUP BY outcome ORDER BY outcome")
    return dict(cursor.fetchall())  # type: ignore[arg-type]
