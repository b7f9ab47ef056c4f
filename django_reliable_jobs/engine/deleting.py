"""What goes with jobs that are deleted."""

from __future__ import annotations

# A part of WITH: what belongs to the jobs `old`.
DELETE_OLD_JOBS = """attempts AS (
    DELETE FROM django_reliable_jobs_attempt WHERE job_id IN (SELECT id FROM old)
), checkpoints AS (
    DELETE FROM django_reliable_jobs_checkpoint WHERE job_id IN (SELECT id FROM old)
), progress AS (
    DELETE FROM django_reliable_jobs_progress WHERE job_id IN (SELECT id FROM old)
), requests AS (
    DELETE FROM django_reliable_jobs_cancelrequest WHERE job_id IN (SELECT id FROM old)
), waits AS (
    DELETE FROM django_reliable_jobs_wait WHERE job_id IN (SELECT id FROM old)
)"""
