"""`manage.py exercise 1` to `4`."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from testproject.exercises import idempotency, overlap, side_by_side, three_servers
from testproject.exercises.stage import Timeline

EXERCISES = {1: three_servers.run, 2: side_by_side.run, 3: idempotency.run, 4: overlap.run}


class Command(BaseCommand):
    """Show something about reliable jobs on a real PostgreSQL, and fail if it is not so."""

    help = "Run an exercise and print a small timeline: 1 three servers, 2 a queue, 3 idempotency, 4 overlap."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which one."""
        parser.add_argument("number", type=int, choices=EXERCISES, help="1 to 4; see docs/exercises")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it; tables and jobs that it makes are gone afterwards."""
        if options["number"] > 2:
            call_command("migrate", verbosity=0)
        EXERCISES[options["number"]](Timeline(self._write))

    def _write(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
