"""What keeps a job from running, as far as it can be known. Writes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from django_reliable_jobs import clock, registry
from django_reliable_jobs.engine.claim import IS_LIMITED, IS_READY
from django_reliable_jobs.engine.inspection import (
    IS_ALIVE,
    KNOWS,
    SERVES,
    as_local,
    as_pause,
    find_cancel_request,
    pause_of_all,
)
from django_reliable_jobs.engine.limits import NOW, PACE, PLACES, PLACES_TAKEN, SECONDS_TO_START
from django_reliable_jobs.engine.lines import LINE
from django_reliable_jobs.engine.queues import IS_PAUSED
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.exceptions import UnknownTask
from django_reliable_jobs.models import Job

MOST_AHEAD = 1000
MOST_HOLDERS = 10

SURROUNDINGS = f"""
SELECT {NOW}, queue.is_paused, queue.paused_at, queue.resume_at, queue.concurrency,
       (SELECT count(*) FROM django_reliable_jobs_job job WHERE job.status = 'RUNNING' AND job.queue_name = %(queue)s),
       alive.workers, alive.serving, alive.knowing, alive.threads,
       (SELECT count(*) FROM django_reliable_jobs_job job
         WHERE job.status = 'RUNNING' AND job.worker_id = ANY(alive.serving_ids))
  FROM (SELECT count(*) AS workers, count(*) FILTER (WHERE serves) AS serving,
               count(*) FILTER (WHERE serves AND knows) AS knowing,
               coalesce(sum(threads) FILTER (WHERE serves), 0) AS threads,
               coalesce(array_agg(id) FILTER (WHERE serves), ARRAY[]::bigint[]) AS serving_ids
          FROM (SELECT id, threads, {SERVES.format("%(queue)s")} AS serves, {KNOWS.format("%(task)s")} AS knows
                  FROM django_reliable_jobs_worker worker WHERE {IS_ALIVE}) worker) alive
       LEFT JOIN (SELECT queue.*, {IS_PAUSED} AS is_paused FROM django_reliable_jobs_queue queue
                   WHERE queue.name = %(queue)s) queue ON true
"""

_HOLDERS = """ARRAY(
       SELECT busy.id FROM django_reliable_jobs_job busy
        WHERE busy.status = 'RUNNING' AND busy.{0} = job.{0} AND busy.{0} IS NOT NULL
        ORDER BY busy.id LIMIT %(shown)s)"""

LIMITS = f"""
SELECT {PLACES.format("job.concurrency_key")}, {PLACES_TAKEN.format("job.concurrency_key")},
       {_HOLDERS.format("concurrency_key")}, {_HOLDERS.format("serial_key")}, pace.spacing IS NULL, {SECONDS_TO_START},
       {NOW}
  FROM django_reliable_jobs_job job CROSS JOIN LATERAL {PACE.format("job.rate_key")} pace
 WHERE job.id = %(id)s
"""

# Two arms, each a range of its index; joined by OR they would be a filter over the whole queue.
_AHEAD = """
SELECT count(*) FROM (
    (SELECT 1 FROM django_reliable_jobs_job job
      WHERE {line} AND job.queue_name = %(queue)s AND job.priority > %(priority)s LIMIT %(limit)s)
     UNION ALL
    (SELECT 1 FROM django_reliable_jobs_job job
      WHERE {line} AND job.queue_name = %(queue)s AND job.priority = %(priority)s
        AND (job.run_after, job.id) < (%(run_after)s, %(id)s) LIMIT %(limit)s)
) ahead
"""
AHEAD = _AHEAD.format(line=IS_READY)
AHEAD_IN_LINE = _AHEAD.format(line=f"{IS_LIMITED} AND {LINE} = %(line)s")


class _Surroundings(NamedTuple):
    now: datetime
    is_paused: bool | None
    paused_at: datetime | None
    resume_at: datetime | None
    concurrency: int | None  # of the queue
    running: int  # in the queue
    alive: int
    serving: int
    knowing: int  # of those that serve
    threads: int  # of those that serve
    busy: int


def explain_waiting(using: str, job: Job) -> list[str]:
    """Return a sentence for each thing that keeps a READY or SCHEDULED job from running; none for other jobs."""
    if job.status not in (Job.Status.READY, Job.Status.SCHEDULED):
        return []
    with engine_cursor(using) as cursor:
        cursor.execute(SURROUNDINGS, {"moment": clock.moment(), "queue": job.queue_name, "task": job.task})
        around = _Surroundings._make(cursor.fetchone())
    sentences = [*_in_the_row(using, job, around.now), *_in_the_code(job), *_in_the_queue(job, around)]
    everything = pause_of_all(using)
    if everything is not None:
        sentences.append(_("All queues are %s.") % as_pause(everything, "jobs resume --all"))
    if not around.alive:
        sentences.append(_("No worker is running. Start one: `manage.py runworker`."))
    elif not around.serving:
        sentences.append(
            _(
                "Workers are running (%(alive)s), but none serves its queue."
                " Start one that does: `manage.py runworker --queue %(queue)s`."
            )
            % {"alive": around.alive, "queue": job.queue_name}
        )
    elif not around.knowing and not registry.is_found_on_demand(job.task):
        sentences.append(
            _(
                "None of the workers that serve its queue (%s) knew its task when it started: is the"
                " release that declares it deployed, and were they started anew?"
            )
            % around.serving
        )
    elif job.status == Job.Status.READY and not around.is_paused and everything is None:
        sentences += [*_in_its_limits(using, job), *_in_the_line(using, job, around)]
    return sentences or [_("Nothing is in its way: a worker takes it at its next look.")]


def _in_the_row(using: str, job: Job, now: datetime) -> list[str]:
    sentences = []
    if job.run_after > now:
        sentences.append(_("It is scheduled for %s.") % as_local(job.run_after))
    elif job.status == Job.Status.SCHEDULED:
        due = as_local(job.run_after)
        sentences.append(_("It was due at %s, and no worker has made it ready yet.") % due)
    if job.reason:
        sentences.append(_("It was put back: %s") % job.reason)
    last_start = min(filter(None, [job.expires_at, job.start_before]), default=None)
    if last_start is not None and last_start < now:
        moment = as_local(last_start)
        sentences.append(_("It expired at %s: a worker will cancel it, and not run it.") % moment)
    if find_cancel_request(using, job.pk):
        sentences.append(_("Somebody asked to cancel it: a worker will do that, and not run it."))
    return sentences


def _in_the_code(job: Job) -> list[str]:
    try:
        registry.get(job.task)
    except UnknownTask as error:
        told = _("In the code that this command runs on, %s A worker that does not know it puts the job back.")
        return [told % error]
    return []


def _in_the_queue(job: Job, around: _Surroundings) -> list[str]:
    sentences = []
    if around.is_paused:
        paused = as_pause(around, f"jobs resume {job.queue_name}")
        sentences.append(_("Its queue, %(queue)s, is %(paused)s.") % {"queue": job.queue_name, "paused": paused})
    if around.concurrency is not None and around.running >= around.concurrency:
        told = _("Its queue, %(queue)s, allows %(allowed)s jobs at once, and %(running)s run.")
        given = {"queue": job.queue_name, "allowed": around.concurrency, "running": around.running}
        sentences.append(told % given)
    return sentences


def _in_its_limits(using: str, job: Job) -> list[str]:
    if not (job.concurrency_key or job.rate_key or job.serial_key):
        return []
    with engine_cursor(using) as cursor:
        cursor.execute(LIMITS, {"moment": clock.moment(), "id": job.pk, "shown": MOST_HOLDERS})
        row = cursor.fetchone()
    if row is None:
        return []
    places, taken, holders, turn, is_stopped, seconds, now = row
    sentences = []
    if job.concurrency_key and taken >= places:
        which = f": {', '.join(map(str, holders))}{', …' if taken > len(holders) else ''}" if holders else ""
        told = _("Its limit, %(key)s, allows %(allowed)s jobs at once, and %(running)s run%(which)s.")
        sentences.append(told % {"key": job.concurrency_key, "allowed": places, "running": taken, "which": which})
    if job.rate_key and is_stopped:
        sentences.append(_("Its rate limit, %s, lets no job start.") % job.rate_key)
    elif job.rate_key and seconds > 0:
        soon, later = _("in %.1f s"), _("at %s")
        until = soon % seconds if seconds < 60 else later % as_local(now + timedelta(seconds=seconds))
        told = _("Its rate limit, %(key)s, lets the next job start %(until)s.")
        sentences.append(told % {"key": job.rate_key, "until": until})
    if job.serial_key and turn:
        sentences.append(_("An earlier job of its schedule, %s, runs, and it waits for that one's end.") % turn[0])
    return sentences


def _in_the_line(using: str, job: Job, around: _Surroundings) -> list[str]:
    keys = (job.concurrency_key, job.rate_key, job.serial_key)
    place: dict[str, Any] = {"queue": job.queue_name, "priority": job.priority, "run_after": job.run_after}
    place |= {"id": job.pk, "limit": MOST_AHEAD, "line": "\n".join(key or "" for key in keys)}
    with engine_cursor(using) as cursor:
        cursor.execute(AHEAD_IN_LINE if any(keys) else AHEAD, place)
        ahead = cursor.fetchone()[0]
    sentences = []
    if ahead:
        number = _("%s or more") % MOST_AHEAD if ahead >= MOST_AHEAD else str(ahead)
        in_line, in_queue = (
            _("Ready jobs with its limits that start before it: %s."),
            _("Ready jobs of its queue that start before it: %s."),
        )
        sentences.append((in_line if any(keys) else in_queue) % number)
    if around.busy >= around.threads:
        sentences.append(
            _("The workers that serve its queue are busy: %(jobs)s jobs run on %(threads)s threads.")
            % {"jobs": around.busy, "threads": around.threads}
        )
    return sentences
