"""What keeps a job from running, as far as it can be known. Writes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

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
        sentences.append(f"All queues are {as_pause(everything, 'jobs resume --all')}.")
    if not around.alive:
        sentences.append("No worker is running. Start one: `manage.py runworker`.")
    elif not around.serving:
        sentences.append(
            f"Workers are running ({around.alive}), but none serves its queue."
            f" Start one that does: `manage.py runworker --queue {job.queue_name}`."
        )
    elif not around.knowing and not registry.is_found_on_demand(job.task):
        sentences.append(
            f"None of the workers that serve its queue ({around.serving}) knew its task when it started: is the"
            " release that declares it deployed, and were they started anew?"
        )
    elif job.status == Job.Status.READY and not around.is_paused and everything is None:
        sentences += [*_in_its_limits(using, job), *_in_the_line(using, job, around)]
    return sentences or ["Nothing is in its way: a worker takes it at its next look."]


def _in_the_row(using: str, job: Job, now: datetime) -> list[str]:
    sentences = []
    if job.run_after > now:
        sentences.append(f"It is scheduled for {as_local(job.run_after)}.")
    elif job.status == Job.Status.SCHEDULED:
        sentences.append(f"It was due at {as_local(job.run_after)}, and no worker has made it ready yet.")
    if job.reason:
        sentences.append(f"It was put back: {job.reason}")
    last_start = min(filter(None, [job.expires_at, job.start_before]), default=None)
    if last_start is not None and last_start < now:
        sentences.append(f"It expired at {as_local(last_start)}: a worker will cancel it, and not run it.")
    if find_cancel_request(using, job.pk):
        sentences.append("Somebody asked to cancel it: a worker will do that, and not run it.")
    return sentences


def _in_the_code(job: Job) -> list[str]:
    try:
        registry.get(job.task)
    except UnknownTask as error:
        return [f"In the code that this command runs on, {error} A worker that does not know it puts the job back."]
    return []


def _in_the_queue(job: Job, around: _Surroundings) -> list[str]:
    sentences = []
    if around.is_paused:
        sentences.append(f"Its queue, {job.queue_name}, is {as_pause(around, f'jobs resume {job.queue_name}')}.")
    if around.concurrency is not None and around.running >= around.concurrency:
        limit = f"allows {around.concurrency} jobs at once, and {around.running} run"
        sentences.append(f"Its queue, {job.queue_name}, {limit}.")
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
        sentences.append(f"Its limit, {job.concurrency_key}, allows {places} jobs at once, and {taken} run{which}.")
    if job.rate_key and is_stopped:
        sentences.append(f"Its rate limit, {job.rate_key}, lets no job start.")
    elif job.rate_key and seconds > 0:
        until = f"in {seconds:.1f} s" if seconds < 60 else f"at {as_local(now + timedelta(seconds=seconds))}"
        sentences.append(f"Its rate limit, {job.rate_key}, lets the next job start {until}.")
    if job.serial_key and turn:
        sentences.append(f"An earlier job of its schedule, {turn[0]}, runs, and it waits for that one's end.")
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
        number = f"{MOST_AHEAD} or more" if ahead >= MOST_AHEAD else str(ahead)
        which = "with its limits" if any(keys) else "of its queue"
        sentences.append(f"Ready jobs {which} that start before it: {number}.")
    if around.busy >= around.threads:
        sentences.append(
            f"The workers that serve its queue are busy: {around.busy} jobs run on {around.threads} threads."
        )
    return sentences
