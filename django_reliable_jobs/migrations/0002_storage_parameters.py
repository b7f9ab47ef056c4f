"""Autovacuum for tables whose rows change status all the time.

The defaults wait until a fifth of a table is dead: with a long history that is millions of dead index entries which
every claim walks past. A fixed number of dead rows keeps the ready index short however long the history is.
"""

from __future__ import annotations

from django.db import migrations

SET = """
ALTER TABLE django_reliable_jobs_job SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE django_reliable_jobs_worker SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, fillfactor = 50
);
ALTER TABLE django_reliable_jobs_pace SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, fillfactor = 50
);
ALTER TABLE django_reliable_jobs_minutecount SET (fillfactor = 70);
ALTER TABLE django_reliable_jobs_progress SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, fillfactor = 70
);
ALTER TABLE django_reliable_jobs_checkpoint SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, fillfactor = 80
);
"""

RESET = """
ALTER TABLE django_reliable_jobs_job RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold, autovacuum_vacuum_cost_delay
);
ALTER TABLE django_reliable_jobs_worker RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, fillfactor
);
ALTER TABLE django_reliable_jobs_pace RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, fillfactor
);
ALTER TABLE django_reliable_jobs_minutecount RESET (fillfactor);
ALTER TABLE django_reliable_jobs_progress RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, fillfactor
);
ALTER TABLE django_reliable_jobs_checkpoint RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, fillfactor
);
"""


class Migration(migrations.Migration):
    dependencies = [("django_reliable_jobs", "0001_initial")]

    operations = [migrations.RunSQL(SET, RESET)]
