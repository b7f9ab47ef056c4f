"""Rows read for people: what is in the queues, who works, which jobs there are. Writes nothing.

Ended jobs may be millions: of them only the dead are counted, and every count here is one that a partial index answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.db.models import Case, Count, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Now
from django.utils import timezone
from django.utils.translation import gettext as _

from django_reliable_jobs import clock, registry
from django_reliable_jobs.engine import queue_counts
from django_reliable_jobs.engine.claim import IS_LIMITED, IS_READY
from django_reliable_jobs.engine.queues import ALL, IS_PAUSED
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.models import Attempt, CancelRequest, Job, Queue, Worker

_NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"
IS_ALIVE = "worker.lost_at IS NULL AND NOT worker.is_stopping AND worker.expires_at >= clock_timestamp()"
# {} is the SQL of a queue's name.
SERVES = "(worker.queues IS NULL OR {0} = ANY(worker.queues)) AND {0} <> ALL(worker.excluded_queues)"

_QUEUES = f"""
WITH RECURSIVE {{ready}}, running AS (
    SELECT queue_name AS name, count(*) AS jobs FROM django_reliable_jobs_job
     WHERE status = 'RUNNING' GROUP BY queue_name
), looked_at AS MATERIALIZED (
    {{scheduled}}
), scheduled AS (
    SELECT queue_name AS name, count(*) AS jobs, min(run_after) AS due FROM looked_at
     WHERE status = 'SCHEDULED' GROUP BY queue_name
), decided AS (
    SELECT name, CASE WHEN {IS_PAUSED} THEN paused_at END AS paused_at,
           CASE WHEN {IS_PAUSED} THEN resume_at END AS resume_at, concurrency
      FROM django_reliable_jobs_queue queue WHERE name <> '{ALL}' AND ({IS_PAUSED} OR concurrency IS NOT NULL)
), alive AS (
    SELECT queues, excluded_queues FROM django_reliable_jobs_worker worker WHERE {IS_ALIVE}
), names AS (
    SELECT name FROM ready UNION SELECT name FROM running UNION SELECT name FROM scheduled
     UNION SELECT name FROM decided UNION SELECT unnest(queues) FROM alive UNION SELECT unnest(%(declared)s::text[])
)
SELECT names.name, coalesce(ready.jobs, 0), coalesce(running.jobs, 0), coalesce(scheduled.jobs, 0),
       CASE WHEN least(ready.due, scheduled.due) <= {_NOW} THEN {_NOW} - least(ready.due, scheduled.due) END,
       decided.paused_at, decided.resume_at, decided.concurrency,
       (SELECT count(*) FROM alive worker WHERE {SERVES.format("names.name")}), coalesce(ready.is_cut, false),
       %(most)s::int IS NOT NULL AND EXISTS (SELECT 1 FROM looked_at OFFSET %(most)s)
  FROM names LEFT JOIN ready USING (name) LEFT JOIN running USING (name) LEFT JOIN scheduled USING (name)
       LEFT JOIN decided USING (name)
 ORDER BY names.name
"""

QUEUES = _QUEUES.format(ready=queue_counts.READY, scheduled=queue_counts.SCHEDULED)
QUEUES_AT_LEAST = _QUEUES.format(ready=queue_counts.READY_AT_LEAST, scheduled=queue_counts.SCHEDULED_AT_LEAST)
MOST_COUNTED = 10_000

# {0} is the SQL of a task's name.
KNOWS = "(worker.tasks IS NULL OR {0} = ANY(worker.tasks))"
# Of millions, some of each kind are looked at: what no worker knows is put back time and again, and so comes soon.
_SOME = "(SELECT task, queue_name FROM django_reliable_jobs_job job WHERE {} LIMIT %(looked_at)s)"
UNKNOWN_TASKS = f"""
WITH waiting AS (
    SELECT task, queue_name, count(*) AS jobs
      FROM ({_SOME.format("status = 'SCHEDULED' ORDER BY run_after, id")}
             UNION ALL {_SOME.format(IS_READY)} UNION ALL {_SOME.format(IS_LIMITED)}) job GROUP BY task, queue_name
), alive AS (
    SELECT queues, excluded_queues, tasks FROM django_reliable_jobs_worker worker WHERE {IS_ALIVE}
)
SELECT waiting.task, waiting.queue_name, waiting.jobs FROM waiting
 WHERE EXISTS (SELECT 1 FROM alive worker WHERE {SERVES.format("waiting.queue_name")})
   AND NOT EXISTS (SELECT 1 FROM alive worker
                    WHERE {SERVES.format("waiting.queue_name")} AND {KNOWS.format("waiting.task")})
 ORDER BY waiting.task, waiting.queue_name
"""
MOST_LOOKED_AT = 10_000

DEAD_BY_TASK = """
SELECT task, count(*) FROM django_reliable_jobs_job WHERE status = 'DEAD' GROUP BY task ORDER BY count(*) DESC, task
"""

# The same, of each task so many.
DEAD_BY_TASK_AT_LEAST = """
WITH RECURSIVE dead AS (
    (SELECT task FROM django_reliable_jobs_job WHERE status = 'DEAD' ORDER BY task LIMIT 1)
     UNION ALL
    SELECT later.* FROM dead CROSS JOIN LATERAL (
           SELECT task FROM django_reliable_jobs_job job
            WHERE status = 'DEAD' AND job.task > dead.task ORDER BY task LIMIT 1) later
)
SELECT dead.task, counted.jobs FROM dead CROSS JOIN LATERAL (
       SELECT count(*) AS jobs FROM (
              SELECT FROM django_reliable_jobs_job job
               WHERE status = 'DEAD' AND job.task = dead.task LIMIT %(most)s + 1) job) counted
 ORDER BY counted.jobs DESC, dead.task
"""

WIDE_COLUMNS = ("args", "kwargs", "result", "reason", "meta", "unique_hash")


@dataclass(frozen=True)
class QueueStatus:
    """One queue now. `oldest` is how long the first job that could run has waited; a pause that ran out is none."""

    name: str
    ready: int
    running: int
    scheduled: int
    oldest: timedelta | None
    paused_at: datetime | None
    resume_at: datetime | None
    concurrency: int | None  # jobs at once in the whole fleet; None: any number
    workers: int  # alive, and serve it
    ready_at_least: bool = False  # there are more ready jobs than were counted
    scheduled_at_least: bool = False


@dataclass(frozen=True)
class WorkerStatus:
    """One worker process now. silent: its lease ran out, rescue has not come yet; lost: rescue has more to do."""

    id: int
    host: str
    pid: int
    queues: list[str] | None
    excluded_queues: list[str]
    threads: int
    started_at: datetime
    running: int
    heartbeat_age: timedelta
    state: str  # working | idle | stopping | silent | lost
    memory: int | None  # bytes


def queues(using: str, *, most: int | None = None) -> list[QueueStatus]:
    """Return every queue that has live jobs, is paused or limited, or is named by a worker or a task; by name.

    `most`: no more ready jobs of a queue are counted, nor scheduled ones of all queues, those that are due first.
    """
    declared = sorted({task.queue_name for task in registry.all_tasks()})
    with engine_cursor(using) as cursor:
        statement = QUEUES if most is None else QUEUES_AT_LEAST
        cursor.execute(statement, {"moment": clock.moment(), "declared": declared, "most": most})
        return [QueueStatus(*row) for row in cursor.fetchall()]


def pause_of_all(using: str) -> Queue | None:
    """Return the row that tells since when, and until when, every queue is paused; None: they are not."""
    return next((row for row in with_pause(Queue.objects.using(using)).filter(name=ALL) if row.is_paused), None)


def workers(using: str) -> list[WorkerStatus]:
    """Return every worker on the list, by host and process; ages are on the database's clock."""
    rows = with_state(Worker.objects.using(using)).order_by("host", "pid", "started_at")
    return [WorkerStatus(*row) for row in rows.values_list(*(each.name for each in fields(WorkerStatus)))]


def with_state(workers: QuerySet[Worker]) -> QuerySet[Worker]:
    """Add to each worker how many jobs it holds, how old its heartbeat is, and its state, as in `WorkerStatus`."""
    held = Job.objects.filter(status=Job.Status.RUNNING, worker_id=OuterRef("pk")).order_by().values("worker_id")
    return workers.annotate(
        running=Coalesce(Subquery(held.annotate(jobs=Count("*")).values("jobs")), 0),
        heartbeat_age=Now() - F("heartbeat_at"),
        state=Case(
            When(lost_at__isnull=False, then=Value("lost")),
            When(expires_at__lt=Now(), then=Value("silent")),
            When(is_stopping=True, then=Value("stopping")),
            When(running__gt=0, then=Value("working")),
            default=Value("idle"),
        ),
    )


def with_pause(queues: QuerySet[Queue]) -> QuerySet[Any]:
    """Add to each queue whether its pause is in force now."""
    has_run_out = Q(resume_at__isnull=False, resume_at__lte=Now())
    return queues.annotate(is_paused=Q(paused_at__isnull=False) & ~has_run_out)


@dataclass(frozen=True)
class UnknownTasks:
    """Jobs that wait for a worker that serves their queue and knows their task, while none does; `jobs` at least."""

    task: str
    queue_name: str
    jobs: int


def unknown_tasks(using: str) -> list[UnknownTasks]:
    """Return the tasks of waiting jobs that none of the workers of their queue knew at its start."""
    with engine_cursor(using) as cursor:
        cursor.execute(UNKNOWN_TASKS, {"looked_at": MOST_LOOKED_AT})
        found = [UnknownTasks(*row) for row in cursor.fetchall()]
    return [each for each in found if not registry.is_found_on_demand(each.task)]


def dead_by_task(using: str, *, most: int | None = None) -> dict[str, int]:
    """Return how many dead letters each task has, most first; one more than `most` if there are more of a task."""
    with engine_cursor(using) as cursor:
        cursor.execute(DEAD_BY_TASK if most is None else DEAD_BY_TASK_AT_LEAST, {"most": most})
        return dict(cursor.fetchall())


def now(using: str) -> datetime:
    """Return the moment that is now for the jobs: the database's, or the one that a test set."""
    with engine_cursor(using) as cursor:
        cursor.execute(f"SELECT {_NOW}", {"moment": clock.moment()})
        moment: datetime = cursor.fetchone()[0]
        return moment


def with_status(jobs: QuerySet[Job], status: str) -> QuerySet[Job]:
    """Narrow to one status in the words of the partial index that has it, however many jobs have ended."""
    condition = Q(status=status)
    if status == Job.Status.READY:
        has_no_limit = Q(concurrency_key__isnull=True, rate_key__isnull=True, serial_key__isnull=True)
        has_limit = Q(concurrency_key__isnull=False) | Q(rate_key__isnull=False) | Q(serial_key__isnull=False)
        condition = (condition & has_no_limit) | (condition & has_limit)
    elif status in Job.ENDED:
        condition &= Q(finished_at__isnull=False)
    return jobs.filter(condition)


def find_jobs(
    using: str,
    *,
    status: str | None = None,
    queue_name: str | None = None,
    task: str | None = None,
    before: int | None = None,
) -> QuerySet[Job]:
    """Return jobs, newest first, without their wide columns; `before` is the id at which the last page ended."""
    jobs = Job.objects.using(using).defer(*WIDE_COLUMNS).order_by("-id")
    if status is not None:
        jobs = with_status(jobs, status)
    given = {"queue_name": queue_name, "task": task, "id__lt": before}
    return jobs.filter(**{name: value for name, value in given.items() if value is not None})


def find_statuses(using: str, job_ids: Iterable[int]) -> dict[int, str]:
    """Return the status of each of these jobs that exists."""
    return dict(Job.objects.using(using).filter(pk__in=list(job_ids)).values_list("pk", "status"))


def find_attempts(using: str, job_id: int, *, limit: int) -> list[Attempt]:
    """Return the last attempts that did not succeed, newest first."""
    return list(Attempt.objects.using(using).filter(job_id=job_id).order_by("-claim")[:limit])


def find_cancel_request(using: str, job_id: int) -> CancelRequest | None:
    """Return the open wish that a job ends, if there is one."""
    return CancelRequest.objects.using(using).filter(pk=job_id).first()


class Pause(Protocol):
    """What tells of a pause: a queue's row, among others."""

    @property
    def paused_at(self) -> datetime | None: ...
    @property
    def resume_at(self) -> datetime | None: ...


def as_pause(pause: Pause, way_out: str) -> str:
    """Return since when, and until when, something is paused; `way_out` is the command that ends it."""
    since = _("paused since %s") % as_local(pause.paused_at) if pause.paused_at else _("paused")
    until = as_local(pause.resume_at) if pause.resume_at else f"`manage.py {way_out}`"
    return _("%(since)s, until %(until)s") % {"since": since, "until": until}


def as_local(moment: datetime) -> str:
    """Return a moment as people read it: to the second, in the current time zone, with its name."""
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"
