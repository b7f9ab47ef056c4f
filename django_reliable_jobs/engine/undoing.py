"""What a job has to undo before it may end as DEAD or CANCELLED."""

from __future__ import annotations

# {} is the SQL of a row with `id` and `run`. What began and is not known to have failed may have had its effect.
HAS_TO_UNDO = """EXISTS (
    SELECT 1 FROM django_reliable_jobs_checkpoint saved
     WHERE saved.job_id = {0}.id AND saved.run = {0}.run AND saved.kind = 'step' AND saved.undo IS NOT NULL
       AND saved.state IN ('done', 'trying') AND saved.undo_state IS DISTINCT FROM 'done')"""
