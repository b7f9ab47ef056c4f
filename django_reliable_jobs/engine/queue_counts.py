"""How many jobs wait in each queue, as parts of WITH RECURSIVE: all are counted, or as many as a page has time for."""

from __future__ import annotations

from django_reliable_jobs.engine.claim import HEADS, IS_LIMITED, IS_READY, LIMITED_QUEUES

# All of them.
READY = f"""ready AS (
    SELECT name, count(*) AS jobs, min(due) AS due, false AS is_cut FROM (
        SELECT queue_name AS name, run_after AS due FROM django_reliable_jobs_job job WHERE {IS_READY}
         UNION ALL
        SELECT queue_name, run_after FROM django_reliable_jobs_job job WHERE {IS_LIMITED}) job GROUP BY name
)"""
SCHEDULED = """SELECT queue_name, run_after, status FROM django_reliable_jobs_job WHERE status = 'SCHEDULED'"""
# Of each queue so many, and of the scheduled those that are due first. The first of each queue and priority is found by
# one descent.
READY_AT_LEAST = f"""{HEADS}, {LIMITED_QUEUES}, ready AS (
    SELECT name, sum(jobs) AS jobs, min(due) AS due, bool_or(jobs > %(most)s) AS is_cut FROM (
        SELECT head.name, counted.jobs, head.due
          FROM (SELECT queue_name AS name, min(run_after) AS due FROM head GROUP BY queue_name) head
         CROSS JOIN LATERAL (
               SELECT count(*) AS jobs FROM (
                      SELECT FROM django_reliable_jobs_job job
                       WHERE {IS_READY} AND job.queue_name = head.name LIMIT %(most)s + 1) job) counted
         UNION ALL
        SELECT limited.queue_name, counted.jobs, counted.due FROM limited CROSS JOIN LATERAL (
               SELECT count(*) AS jobs, min(run_after) AS due FROM (
                      SELECT job.run_after FROM django_reliable_jobs_job job
                       WHERE {IS_LIMITED} AND job.queue_name = limited.queue_name LIMIT %(most)s + 1) job) counted) job
     GROUP BY name
)"""
SCHEDULED_AT_LEAST = """SELECT queue_name, run_after, status FROM django_reliable_jobs_job
         WHERE status IN ('SCHEDULED', 'WAITING') ORDER BY run_after, id LIMIT %(most)s + 1"""
