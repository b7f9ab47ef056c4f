from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from django_reliable_jobs.engine import schedules, slots
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.exceptions import InvalidSchedule
from django_reliable_jobs.management.celery_beat import reading
from django_reliable_jobs.management.celery_beat.translating import NotImportable, Translation, translate
from django_reliable_jobs.management.console import OneAlias
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.schedule_options import OVERLAPS

CHANGES = [
    ("", "django-celery-beat", "here"),
    ("two beats, or two schedulers", "everything runs twice", "one job per slot, whoever makes it"),
    ("while none ran", "one run, at the next start", "the same (catch_up=latest); or all, or none"),
    ("the last run goes on", "the next starts beside it", "the same, unless --overlap says otherwise"),
    ("an interval", "counts from the last run, and drifts", "keeps its phase"),
    ("a changed clock", "some runs twice, some never", "Debian cron's rule, shown with the schedule"),
    ("a run fails", "no retry unless the task says so", "the task's max_attempts, 5 if it says nothing"),
    ("expires, in seconds", "a worker drops the message", "the slot or job is recorded as missed"),
    ("enabled again", "may fire at once for the past", "goes on from now"),
]


class Command(BaseCommand):
    help = (
        "Make schedules of the periodic tasks of django-celery-beat. Its rows are only read; a schedule whose name is"
        " taken is left alone, so that the command may be run again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only tell what would be made")
        parser.add_argument(
            "--overlap",
            choices=OVERLAPS,
            default="allow",
            help="when the last run goes on (default: %(default)s, as in Celery)",
        )
        for option, what in (
            ("--source", "the database of django-celery-beat (default: default)"),
            ("--database", "the database that gets the schedules (default: where the router sends them)"),
        ):
            parser.add_argument(option, action=OneAlias, way_out="run the command once for each", help=what)

    def handle(self, *args: Any, **options: Any) -> None:
        using, source = options["database"] or default_database(), options["source"] or DEFAULT_DB_ALIAS
        for alias, table in ((source, f"{reading.PREFIX}periodictask"), (using, Schedule._meta.db_table)):
            if alias not in connections or table not in connections[alias].introspection.table_names():
                raise CommandError(f"The database {alias!r} has no table {table}. Name others by --source, --database.")
        zone = None
        if not getattr(settings, "DJANGO_CELERY_BEAT_TZ_AWARE", True):
            zone = getattr(settings, "CELERY_TIMEZONE", None) or settings.TIME_ZONE
        made, left = 0, 0
        with transaction.atomic(using=using):
            for entry in reading.read(source):
                try:
                    now = slots.now(using)
                    self._make(using, translate(entry, now=now, zone=zone, overlap=options["overlap"]))
                    made += 1
                except NotImportable as reason:
                    left += 1
                    self.stdout.write(self.style.WARNING(f"Not imported: {entry.task['name']}: {reason}"))
            transaction.set_rollback(options["dry_run"], using=using)
        self._write_changes()
        would = "Nothing was written: this was a dry run. It would have made" if options["dry_run"] else "Made"
        self.stdout.write(f"{would} {made} schedules; {left} periodic tasks are left.")

    def _make(self, using: str, found: Translation) -> None:
        try:
            if Schedule.objects.using(using).filter(name=found.name).exists():
                raise NotImportable("there is a schedule of that name already")
            with transaction.atomic(using=using):
                schedule = schedules.create(using, name=found.name, task=found.task, options=found.options)
                if found.is_paused:
                    schedules.pause(using, [schedule.pk], reason="was disabled in django-celery-beat")
        except InvalidSchedule as error:
            raise NotImportable(str(error)) from None
        paused = " Paused, as it was disabled." if found.is_paused else ""
        self.stdout.write(f"Imported: {found.name}: {found.task}. {found.options.recurrence.describe()}{paused}")
        for note in found.notes:
            self.stdout.write(f"  {note}")

    def _write_changes(self) -> None:
        widths = [max(len(row[column]) for row in CHANGES) for column in range(3)]
        self.stdout.write("\nWhat changes in meaning:\n")
        for row in CHANGES:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        self.stdout.write("")
