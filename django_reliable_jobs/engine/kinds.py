"""Ended jobs by kind: those with the same status, task and queue stand together in the index `reliable_job_ended`.

The index is the only one that an ordinary job is entered in at its end. It tells the kinds that there are, and the jobs
of each from the first that ended to the last: by kinds they are pruned, and the few among millions are found.
"""

from __future__ import annotations

# Of these statuses (parameter), one descent of the index for each kind, however many jobs each has. A part of WITH
# RECURSIVE.
KINDS = """kind(status, task, queue_name) AS (
    (SELECT first.* FROM unnest(%(statuses)s::text[]) AS given(status) CROSS JOIN LATERAL (
            SELECT job.status, job.task, job.queue_name FROM django_reliable_jobs_job job
             WHERE job.status = given.status AND job.finished_at IS NOT NULL
             ORDER BY job.task, job.queue_name LIMIT 1) first)
     UNION ALL
    SELECT next.* FROM kind CROSS JOIN LATERAL (
           SELECT job.status, job.task, job.queue_name FROM django_reliable_jobs_job job
            WHERE job.status = kind.status AND job.finished_at IS NOT NULL
              AND (job.task, job.queue_name) > (kind.task, kind.queue_name)
            ORDER BY job.task, job.queue_name LIMIT 1) next
)"""

# The row `job` is of the row `kind`.
IS_OF_KIND = """job.status = kind.status AND job.task = kind.task AND job.queue_name = kind.queue_name
           AND job.finished_at IS NOT NULL"""
