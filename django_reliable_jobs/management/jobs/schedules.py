"""`jobs schedules`, `run-schedule`, `pause-schedule`, `resume-schedule`: what the admin does, for a terminal."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_reliable_jobs import masking
from django_reliable_jobs.engine import inspection, schedule_history, schedules
from django_reliable_jobs.engine.schedule_history import LastJob
from django_reliable_jobs.exceptions import ReliableJobsError, UnknownSchedule
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb
from django_reliable_jobs.management.jobs.moments import distance
from django_reliable_jobs.management.jobs.pausing import add_end, end_of_pause
from django_reliable_jobs.management.jobs.report import Report, table
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.models.schedule import is_paused

_COLUMNS = (
    *("name", "task", "kwargs", "recurrence", "overlap", "catch_up", "managed_by", "next_run_at"),
    *("paused_at", "resume_at", "pause_reason", "error"),
)


def add_schedules(verbs: Verbs) -> None:
    add_verb(verbs, "schedules", list_schedules, "List the schedules: their state, their next run and their last.")


def add_run_schedule(verbs: Verbs) -> None:
    parser = add_verb(verbs, "run-schedule", run_schedule, "Make a job of a schedule now, beside its slots.")
    parser.add_argument("name", metavar="NAME", help="the schedule's name")


def add_pause_schedule(verbs: Verbs) -> None:
    parser = add_verb(verbs, "pause-schedule", pause_schedule, "Make no more jobs of schedules; none is made up for.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="a schedule's name")
    parser.add_argument("--reason", default="paused by `manage.py jobs pause-schedule`", help="shown beside it")
    add_end(parser)


def add_resume_schedule(verbs: Verbs) -> None:
    parser = add_verb(verbs, "resume-schedule", resume_schedule, "Let paused schedules go on from now.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="a schedule's name")


def list_schedules(using: str, options: Options) -> Report:
    found, now = list(Schedule.objects.using(using).order_by("name")), inspection.now(using)
    last = schedule_history.last_jobs(using, (schedule.pk for schedule in found))
    rows = [
        [
            *(schedule.name, _state(schedule, now)),
            "-" if schedule.next_run_at is None else distance(schedule.next_run_at, now=now),
            _last(last.get(schedule.pk), now),
            _runs(schedule),
        ]
        for schedule in found
    ]
    return Report(
        {"schedules": [_data(schedule, last.get(schedule.pk), now) for schedule in found]},
        table(["SCHEDULE", "STATE", "NEXT RUN", "LAST RUN", "RUNS"], rows, width=options["width"], cut="SCHEDULE")
        if rows
        else ["There is no schedule."],
    )


def run_schedule(using: str, options: Options) -> Report:
    try:
        job = schedules.run_now(using, schedules.find(using, options["name"]).pk)
    except ReliableJobsError as error:
        raise CommandError(f"Nothing was made: {error}") from error
    return Report({"job_id": job.pk}, [f"Made job {job.pk} of {options['name']}."])


def pause_schedule(using: str, options: Options) -> Report:
    found, end = _find(using, options["names"]), end_of_pause(using, options)
    schedules.pause(using, [schedule.pk for schedule in found], resume_at=end, reason=options["reason"])
    until = f"until {inspection.as_local(end)}" if end else "until resumed"
    names = sorted(schedule.name for schedule in found)
    return Report({"paused": names, "resume_at": end}, [f"Paused {until}: {name}" for name in names])


def resume_schedule(using: str, options: Options) -> Report:
    found = _find(using, options["names"])
    ids = set(schedules.resume(using, [schedule.pk for schedule in found]))
    resumed = sorted(schedule.name for schedule in found if schedule.pk in ids)
    others = sorted(schedule.name for schedule in found if schedule.pk not in ids)
    return Report(
        {"resumed": resumed, "not_paused": others},
        [*(f"Goes on from now: {name}" for name in resumed), *(f"Was not paused: {name}" for name in others)],
    )


def _find(using: str, names: list[str]) -> list[Schedule]:
    try:
        return [schedules.find(using, name) for name in dict.fromkeys(names)]
    except UnknownSchedule as error:
        raise CommandError(f"Nothing was changed: {error}") from error


def _state(schedule: Schedule, now: datetime) -> str:
    if is_paused(schedule, now):
        return f"paused until {inspection.as_local(schedule.resume_at)}" if schedule.resume_at else "paused"
    if schedule.error:
        return "broken"
    return "active" if schedule.next_run_at else "ended"


def _runs(schedule: Schedule) -> str:
    try:
        return schedule.rule().describe().split(". ")[0].split(" of elapsed time")[0].removesuffix(".")
    except ReliableJobsError as error:
        return str(error)


def _last(last: LastJob | None, now: datetime) -> str:
    if last is None:
        return "-"
    moment = last.finished_at or last.started_at
    return f"{last.status} {distance(moment, now=now)}" if moment else last.status


def _data(schedule: Schedule, last: LastJob | None, now: datetime) -> dict[str, Any]:
    return {
        **{name: getattr(schedule, name) for name in _COLUMNS},
        "kwargs": masking.masked(schedule.task, [], schedule.kwargs)[1],
        "state": _state(schedule, now).split(" ")[0],
        "last_job": None if last is None else {**last._asdict(), "schedule_id": schedule.pk},
    }
