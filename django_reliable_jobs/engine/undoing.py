"""What a job has to undo before it may end as DEAD or CANCELLED."""

from __future__ import annotations

# Of a step's row, named saved. What began and has neither failed for good nor is done may have had its effect, and
# nobody knows: its worker died in the middle, or the answer was lost. What was rolled back has left nothing. One that
# failed as its result can't be kept has an undo that is to be tried.
MAY_BE_UNDONE = """saved.kind = 'step' AND saved.undo IS NOT NULL AND saved.undo_state IS DISTINCT FROM 'done'
       AND (saved.state = 'done' OR saved.state = 'trying' AND NOT saved.is_atomic
            OR saved.state = 'failed' AND saved.undo_state IS NOT NULL)"""

# {} is the SQL of a row with `id` and `run`.
HAS_TO_UNDO = f"""EXISTS (
    SELECT 1 FROM django_reliable_jobs_checkpoint saved
     WHERE saved.job_id = {{0}}.id AND saved.run = {{0}}.run AND {MAY_BE_UNDONE})"""
