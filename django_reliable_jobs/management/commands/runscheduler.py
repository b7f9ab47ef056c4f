from __future__ import annotations

import os
import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_reliable_jobs import notify
from django_reliable_jobs.management.console import OneAlias, database_of, show_log
from django_reliable_jobs.management.probing import add_health_port, fleet_pages, start_probe
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.probe import complaints_of
from django_reliable_jobs.processes.scheduler import PART_DIED, Scheduler


class Command(BaseCommand):
    help = (
        "Make the jobs of schedules until stopped. Start as many as you like, on as many hosts as you like: one leads."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database",
            action=OneAlias,
            way_out="start a scheduler for each, or runworker --with-scheduler, which takes several",
            help="the database that holds the schedules (default: where the router sends them)",
        )
        add_health_port(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        show_log(options["verbosity"])
        connections.leave_pools()
        using = database_of(options["database"])
        scheduler = Scheduler(using=using, on_stuck=lambda: os._exit(PART_DIED), channels=notify.channels())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: scheduler.request_stop())
        if options["health_port"] is not None:
            pages = fleet_pages([using])
            start_probe(options["health_port"], lambda: complaints_of(scheduler.own_threads()), pages=pages)
        code = scheduler.run()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: a thread that waits for a lost server must not hold up the end.
        os._exit(code)
