"""`manage.py chaos`: a run of violence and its audit; exits non-zero if anything was found."""

from __future__ import annotations

import signal
from pathlib import Path
from random import SystemRandom
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from testproject.chaos import report
from testproject.chaos.run import Options, Run


class Command(BaseCommand):
    help = "Run real workers on real work on a private PostgreSQL, be violent to all of it, and audit what came out."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--minutes", type=float, default=1.0, help="of violence; the drain and the audit come on top (default: 1)")
        add("--workers", type=int, default=4, help="`runworker` commands at a time (default: 4)")
        add("--producers", type=int, default=2, help="processes that enqueue (default: 2)")
        add("--rate", type=float, default=20.0, help="transactions a second of all producers (default: 20)")
        add("--seed", type=int, default=None, help="repeats the acts, though not their exact instants")
        add("--lease", type=float, default=4.0, help="LEASE_SECONDS of the workers (default: 4)")
        add("--pause", type=float, default=1.5, help="seconds between two acts, on average (default: 1.5)")
        add("--json", type=Path, metavar="FILE", help="write everything that is known about the run")

    def handle(self, *args: Any, **options: Any) -> None:
        # So that a run that is asked to end leaves no process behind.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        names = ("minutes", "workers", "producers", "rate", "lease", "pause")
        seed = SystemRandom().getrandbits(31) if options["seed"] is None else options["seed"]
        self.stdout.write(f"seed {seed}")
        result = Run(Options(seed=seed, **{name: options[name] for name in names}), say=self.stdout.write).execute()
        for line in report.as_table(result):
            self.stdout.write(line)
        if options["json"]:
            options["json"].write_text(report.as_json(result) + "\n")
        if result.findings:
            raise CommandError(f"{len(result.findings)} findings; the database and the logs are in {result.folder}")
