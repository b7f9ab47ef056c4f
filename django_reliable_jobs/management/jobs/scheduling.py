"""`jobs sync-schedules`, `jobs backfill`: rows follow the code, and slots of the past get their jobs."""

from __future__ import annotations

from datetime import datetime

from django.core.management.base import CommandError

from django_reliable_jobs.engine import backfill as engine_backfill
from django_reliable_jobs.engine import reconcile, schedules
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.exceptions import InvalidSchedule, UnknownSchedule, UnknownTask
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb, as_argument
from django_reliable_jobs.management.jobs.moments import parse_moment
from django_reliable_jobs.management.jobs.report import Report

MOST_LISTED = 20

_SENTENCES = {
    "created": "Created",
    "changed": "Changed",
    "unchanged": "Unchanged",
    "paused": "Paused",
    "resumed": "Resumed",
    "taken": "Left alone",
    "invalid": "Left alone",
}


def add_sync_schedules(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "sync-schedules",
        sync_schedules,
        "Bring the rows of schedules in line with the code; what an operator changed or made stays.",
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")


def add_backfill(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "backfill", backfill, "Make a job for each slot of a schedule in a span of the past that has none."
    )
    parser.add_argument("name", metavar="NAME", help="the schedule's name")
    when = "2030-01-31T08:00, in the project's time zone; included"
    parser.add_argument(
        "--from", type=as_argument(parse_moment), required=True, dest="start", metavar="MOMENT", help=when
    )
    parser.add_argument("--to", type=as_argument(parse_moment), required=True, dest="end", metavar="MOMENT", help=when)
    parser.add_argument("--dry-run", action="store_true", help="only tell which slots would get a job")


def sync_schedules(using: str, options: Options) -> Report:
    changes = reconcile.sync(using, dry_run=options["dry_run"])
    lines = []
    for change in changes:
        details = f" ({', '.join(change.details)})" if change.details else ""
        lines.append(f"{_SENTENCES[change.action]}: {change.name}{details}")
        if change.overridden:
            lines.append(f"  overridden by an operator, and left so: {', '.join(change.overridden)}")
    if not changes:
        lines.append("No schedule is declared in code.")
    if options["dry_run"]:
        lines.append("Nothing was written: this was a dry run.")
    failed = [change.name for change in changes if change.action in ("taken", "invalid")]
    return Report(
        {"dry_run": options["dry_run"], "schedules": [vars(change) for change in changes]},
        lines,
        failure=f"Not in line with the code: {', '.join(failed)}." if failed else None,
    )


def backfill(using: str, options: Options) -> Report:
    try:
        schedule = schedules.find(using, options["name"])
        done = engine_backfill.backfill(
            using, schedule.pk, start=options["start"], end=options["end"], dry_run=options["dry_run"]
        )
    except (UnknownSchedule, UnknownTask, InvalidSchedule) as error:
        raise CommandError(f"Nothing was made: {error}.") from error
    verb = "Would make" if options["dry_run"] else "Made"
    return Report(
        {"slots": done.slots, "had_job": done.had_job, "job_ids": done.job_ids, "dry_run": options["dry_run"]},
        [
            f"{verb} {len(done.slots)} jobs of {schedule.name}" + (":" if done.slots else "."),
            *_listed(done.slots),
            *([f"{len(done.had_job)} slots of the span have a job already."] if done.had_job else []),
        ],
    )


def _listed(moments: list[datetime]) -> list[str]:
    lines = [f"  {as_local(moment)}" for moment in moments[:MOST_LISTED]]
    return [*lines, f"  and {len(moments) - MOST_LISTED} more"] if len(moments) > MOST_LISTED else lines
