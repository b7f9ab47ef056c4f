from __future__ import annotations

import shutil
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, ProgrammingError, connections

from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.management.console import migrate_command
from django_reliable_jobs.management.jobs.changing import add_cancel, add_prune, add_retry
from django_reliable_jobs.management.jobs.checking import add_check
from django_reliable_jobs.management.jobs.limiting import add_limit, add_limits
from django_reliable_jobs.management.jobs.listing import add_list
from django_reliable_jobs.management.jobs.pausing import add_pause, add_resume
from django_reliable_jobs.management.jobs.pinging import add_ping
from django_reliable_jobs.management.jobs.progress import add_watch
from django_reliable_jobs.management.jobs.report import Report
from django_reliable_jobs.management.jobs.schedules import (
    add_pause_schedule,
    add_resume_schedule,
    add_run_schedule,
    add_schedules,
)
from django_reliable_jobs.management.jobs.scheduling import add_backfill, add_sync_schedules
from django_reliable_jobs.management.jobs.showing import add_show
from django_reliable_jobs.management.jobs.status import add_status
from django_reliable_jobs.management.jobs.steps import add_emit

VERBS = (
    add_status,
    add_check,
    add_list,
    add_show,
    add_watch,
    add_retry,
    add_cancel,
    add_pause,
    add_resume,
    add_emit,
    add_limits,
    add_limit,
    add_prune,
    add_schedules,
    add_run_schedule,
    add_pause_schedule,
    add_resume_schedule,
    add_sync_schedules,
    add_backfill,
    add_ping,
)


class Command(BaseCommand):
    help = "Look at jobs, queues and workers, and act on them."

    def add_arguments(self, parser: CommandParser) -> None:
        self.full_help = parser.format_help
        verbs = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB")
        for add in VERBS:
            add(verbs)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] is None:
            self.stderr.write(self.full_help())
            raise CommandError("Name a verb: manage.py jobs status", returncode=2)
        width = shutil.get_terminal_size().columns if self.stdout.isatty() else None
        report = _answer(_database(options["database"]), {**options, "width": width, "say": self._say})
        lines = [report.as_json()] if options["json"] else report.lines
        if lines:
            self.stdout.write("\n".join(lines))
        if report.failure:
            raise CommandError(report.failure, returncode=report.exit_code)

    def _say(self, text: str) -> None:
        """Write what can't wait until all is known."""
        self.stdout.write(text, ending="")
        self.stdout.flush()


def _answer(using: str, options: dict[str, Any]) -> Report:
    try:
        report: Report = options["run"](using, options)
        return report
    except OperationalError as error:
        raise CommandError(f"The database {using!r} did not answer: {str(error).strip()}") from error
    except ProgrammingError as error:
        if getattr(error.__cause__, "sqlstate", None) == "42P01":  # undefined_table
            missing = str(error).splitlines()[0]
            raise CommandError(
                f"The database {using!r} lacks a table ({missing}). Run: {migrate_command(using)}"
            ) from error
        raise


def _database(alias: str | None) -> str:
    using = alias or default_database()
    if using not in connections:
        raise CommandError(f"There is no database {using!r} in DATABASES; the aliases are {', '.join(connections)}.")
    if connections[using].vendor != "postgresql":
        raise CommandError(f"The database {using!r} is {connections[using].vendor}; jobs live in PostgreSQL.")
    return using
