"""How far a job is, in `jobs show`; and `jobs watch`, which shows it until the job has ended."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError

from django_reliable_jobs.engine import inspection, progress
from django_reliable_jobs.engine.progress import Loop, Standing
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb, job_id, seconds
from django_reliable_jobs.management.jobs.moments import distance, span
from django_reliable_jobs.management.jobs.report import Report, printable
from django_reliable_jobs.models import Job, Progress
from django_reliable_jobs.progress import in_words

BAR = 24  # characters
MOST_FAULTS = 10
LONGEST_CURSOR = 60
SILENCE = timedelta(seconds=15)  # so long without a word, a job has no speed
CLEAR_LINE = "\r\x1b[K"


def add_watch(verbs: Verbs) -> None:
    parser = add_verb(verbs, "watch", watch, "Show how far a job is until it has ended; fails if it did not succeed.")
    parser.add_argument("id", type=job_id, metavar="ID")
    parser.add_argument("--every", type=seconds, default=1.0, metavar="S", help="look every S seconds (default: 1)")


def watch(using: str, options: Options) -> Report:
    """Write a line whenever there is news; on a terminal, over the last one."""
    is_terminal = options["width"] is not None
    last: object = None
    while True:
        job = Job.objects.using(using).filter(pk=options["id"]).first()
        if job is None:
            raise CommandError(f"There is no job {options['id']}; it may have been pruned after it ended.")
        told = progress.of_job(using, job)
        line = _watched(job, told, inspection.now(using))
        news = line if is_terminal else (job.status, told and (told.done, told.told_at))
        if not options["json"] and news != last:
            options["say"](f"{CLEAR_LINE}{line[: options['width'] - 1]}" if is_terminal else f"{line}\n")
        last = news
        if job.has_ended:
            break
        try:
            time.sleep(options["every"])
        except KeyboardInterrupt:
            break
    if is_terminal and not options["json"]:
        options["say"]("\n")
    is_bad = job.has_ended and job.status != Job.Status.SUCCEEDED
    failure = f"Job {job.pk} ended {job.status}: {printable(job.reason or '')}" if is_bad else None
    return Report({"id": job.pk, "status": job.status, **progress_data(progress.standing_of(using, job))}, [], failure)


def _watched(job: Job, told: Progress | None, now: datetime) -> str:
    parts = [f"job {job.pk}  {job.status:<9}"]
    if told is not None:
        parts.append(_bar(told))
        if job.status == Job.Status.RUNNING:
            parts += [_speed(told, now), printable(told.message)]
    return "  ".join(filter(None, parts)).rstrip()


def progress_data(standing: Standing) -> dict[str, Any]:
    """Return how far a job is for JSON."""
    told = standing.progress
    names = ("done", "total", "skipped", "rate", "message", "told_at")
    left = None if told is None or told.time_left is None else told.time_left.total_seconds()
    return {
        "progress": None if told is None else {**{name: getattr(told, name) for name in names}, "seconds_left": left},
        "batches": [vars(loop) for loop in standing.loops],
        "last_checkpoint": standing.checkpoint,
        "last_checkpoint_at": standing.saved_at,
    }


def progress_lines(job: Job, standing: Standing, now: datetime) -> list[str]:
    """Return how far a job is for reading; nothing if it has not said and has saved nothing."""
    told, lines = standing.progress, []
    if told is not None:
        lines.append(f"  {_bar(told)}")
        if job.status == Job.Status.RUNNING:
            lines += [f"  {speed}" for speed in [_speed(told, now)] if speed]
        if told.message:
            lines.append(f"  {printable(told.message)}")
    if standing.saved_at is not None:
        lines.append(
            f"  last checkpoint {distance(standing.saved_at, now=now)}: {printable(standing.checkpoint or '')}"
        )
    lines += [line for loop in standing.loops for line in _loop_lines(loop, job)]
    return ["", "Progress", *lines] if lines else []


def as_text(told: Progress) -> str:
    """Return how far an attempt came."""
    return in_words(told.done, told.total, told.skipped)


def _bar(told: Progress) -> str:
    if not told.total:
        return as_text(told)
    share = min(told.done / told.total, 1.0)
    full = int(share * BAR)
    # 100 % only when all is done.
    percent = int(share * 1000) / 10
    return f"[{'#' * full}{'-' * (BAR - full)}] {percent:5.1f} %  {as_text(told)}"


def _speed(told: Progress, now: datetime) -> str:
    if now - told.told_at > SILENCE:
        return f"silent for {span(now - told.told_at)}"
    if not told.rate:
        return ""
    digits = 0 if told.rate >= 10 else 1
    left = "" if told.time_left is None else f", about {span(told.time_left)} left"
    return f"{told.rate:,.{digits}f} per second{left}"


def _loop_lines(loop: Loop, job: Job) -> list[str]:
    skipped = f", {loop.skipped:,} skipped" if loop.skipped else ""
    goes_on = "up to" if job.status == Job.Status.SUCCEEDED else "goes on after"
    after = printable(str(loop.after))
    after = after if len(after) <= LONGEST_CURSOR else f"{after[:LONGEST_CURSOR]}…"
    lines = [f"  batches of {printable(loop.name)}: {loop.done:,} done{skipped}, {goes_on} {after}"]
    for fault in loop.faults[:MOST_FAULTS]:
        lines.append(f"    skipped {printable(str(fault.get('item')))}: {printable(str(fault.get('error')))}")
    if loop.skipped > MOST_FAULTS:
        lines.append(f"    and {loop.skipped - MOST_FAULTS:,} more; --json has the first {len(loop.faults)}")
    return lines
