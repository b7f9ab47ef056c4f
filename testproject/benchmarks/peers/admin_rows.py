"""What a fleet leaves in a week: very many ended jobs, others that live, and what is rare among them."""

from __future__ import annotations

from datetime import timedelta

from django.db import connection

from django_reliable_jobs.engine import schedules as engine
from django_reliable_jobs.recurrence import Every
from django_reliable_jobs.schedule_options import ScheduleOptions
from testproject.benchmarks.tasks import noop

SCHEDULES = ("prices", "stock", "feeds", "mails", "backups", "once a year")
RARE_KEY = "order-42"

# The oldest are of a rare task, of a rare queue, of a schedule that hardly runs, and of a task that nobody calls any
# more; the others are mixed as a shop mixes them. Jobs of 8 workers a day.
ENDED = """
INSERT INTO django_reliable_jobs_job
       (task, queue_name, kwargs, status, attempt, max_attempts, claims, token, worker_id, created_at, run_after,
        first_started_at, started_at, finished_at, schedule_id, slot, reason)
SELECT task, CASE WHEN number BETWEEN 31 AND 60 THEN 'rare' WHEN task = 'shop.mail' THEN 'mail'
                  WHEN task LIKE 'shop.report%%' THEN 'reports' ELSE 'default' END,
       jsonb_build_object('number', number, 'note', 'two JSON arguments'), status, 1, 5, 1, number,
       extract(day FROM moment)::int * 100 + mod(number, 8), moment, moment, moment + interval '20 ms',
       moment + interval '20 ms', moment + interval '20 ms' + mod(number, 50) * interval '10 ms', schedule,
       CASE WHEN schedule IS NOT NULL THEN moment END, CASE WHEN status = 'DEAD' THEN 'OSError: disk full' END
  FROM generate_series(1, %(rows)s) AS given(number),
       LATERAL (SELECT now() - (%(rows)s - number) * (interval '7 days' / %(rows)s) AS moment,
                       CASE WHEN mod(number, 250) = 3 THEN 'DEAD' WHEN mod(number, 500) = 5 THEN 'CANCELLED'
                            ELSE 'SUCCEEDED' END AS status,
                       CASE WHEN number <= 30 THEN 'shop.yearly' WHEN number <= %(rows)s * 0.02 THEN 'shop.retired'
                            WHEN mod(number, 10) < 4 THEN 'shop.mail' WHEN mod(number, 10) < 6 THEN 'shop.index'
                            WHEN mod(number, 100) = 99 THEN 'shop.report.daily'
                            WHEN mod(number, 100) = 98 THEN 'shop.report.hourly'
                            ELSE 'shop.sync.' || mod(number, 7) END AS task,
                       (SELECT id FROM django_reliable_jobs_schedule WHERE name = 'prices')
                       + CASE WHEN number <= 30 THEN 5 WHEN mod(number, 50) = 7 THEN mod(number / 50, 5) END
                       AS schedule) made
 ORDER BY number
"""
LIVE = """
INSERT INTO django_reliable_jobs_job
       (task, queue_name, kwargs, status, created_at, run_after, attempt, claims, token, worker_id, first_started_at,
        started_at)
SELECT 'shop.mail', 'mail', '{"number": 1, "note": ""}', status, now(),
       now() + CASE WHEN status = 'SCHEDULED' THEN number * interval '1 second' ELSE interval '0' END,
       held, held, nullif(held, 0) * number, nullif(held, 0) * (extract(day FROM now())::int * 100 + mod(number, 8)),
       started, started
  FROM generate_series(1, %(live)s) AS given(number),
       LATERAL (SELECT CASE WHEN number <= 16 THEN 'RUNNING' WHEN mod(number, 100) = 0 THEN 'WAITING'
                            WHEN mod(number, 5) = 0 THEN 'READY' ELSE 'SCHEDULED' END AS status) made,
       LATERAL (SELECT (status = 'RUNNING')::int AS held, CASE WHEN status = 'RUNNING' THEN now() END AS started) at
"""
OTHERS = (
    """INSERT INTO django_reliable_jobs_attempt
              (job_id, number, claim, outcome, started_at, finished_at, worker, error_class, error_message)
       SELECT id, 1, 1, 'failed', started_at, finished_at, 'web1:7',
              CASE mod(id, 20) WHEN 3 THEN 'ValueError' ELSE 'OSError' END, 'disk full'
         FROM django_reliable_jobs_job WHERE status = 'DEAD'""",
    """INSERT INTO django_reliable_jobs_slot (schedule_id, slot, outcome, reason, job_id, decided_at)
       SELECT schedule_id, slot, 'job', '', id, slot FROM django_reliable_jobs_job WHERE slot IS NOT NULL""",
    """INSERT INTO django_reliable_jobs_slot (schedule_id, slot, outcome, reason, decided_at)
       SELECT schedule_id, slot + interval '3 ms', 'skipped', 'overlap', slot
         FROM django_reliable_jobs_job WHERE slot IS NOT NULL AND mod(id, 3) = 0""",
    """INSERT INTO django_reliable_jobs_worker (id, host, pid, threads, expires_at)
       SELECT extract(day FROM now())::int * 100 + number, 'worker' || number, 7, 8, now() + interval '1 day'
         FROM generate_series(0, 7) AS given(number)""",
    """INSERT INTO django_reliable_jobs_minutecount (minute, queue_name, task, outcome, count, seconds)
       SELECT date_trunc('minute', finished_at), queue_name, task, lower(status), count(*), 1
         FROM django_reliable_jobs_job WHERE finished_at IS NOT NULL GROUP BY 1, 2, 3, 4""",
    """INSERT INTO django_reliable_jobs_alert (kind, subject, severity, message)
       SELECT 'dead_letters', 'shop.mail ' || number, 'warning', 'They died.'
         FROM generate_series(1, 30) AS given(number)""",
)


def admin_rows(rows: int, live: int) -> None:
    """Fill empty tables with so many ended jobs and so many live ones."""
    for name in SCHEDULES:
        options = ScheduleOptions(recurrence=Every(minutes=5), kwargs={"number": 1, "note": name})
        engine.create("default", name=name, task=noop.name, options=options)
    with connection.cursor() as cursor:
        for statement in (ENDED, LIVE):
            cursor.execute(statement, {"rows": rows, "live": live})
        for statement in OTHERS:
            cursor.execute(statement)
    noop.using(unique_key=RARE_KEY, run_after=timedelta(days=300)).enqueue(number=1, note="rare")
