from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils import autoreload

from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.worker import Worker


class Command(BaseCommand):
    help = "Run jobs until stopped. Start as many as you like, on as many hosts as you like."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add(
            "--queue",
            action="append",
            type=_queue,
            metavar="NAME[=WEIGHT]",
            dest="queues",
            default=None,
            help="serve this queue; repeat for more. Strictly in the order given, or by weights. Default: all in turn.",
        )
        add(
            "--except",
            action="append",
            metavar="NAME",
            dest="excluded",
            default=[],
            help="serve all but this queue",
        )
        add(
            "--threads",
            type=_positive,
            default=8,
            metavar="N",
            help="jobs that run at once (default: 8)",
        )
        add("--burst", action="store_true", help="run what is ready or due, then exit")
        add(
            "--shutdown-timeout",
            type=float,
            default=25.0,
            metavar="SECONDS",
            help="how long running jobs may go on after SIGTERM before they are given back (default: 25)",
        )
        add(
            "--database",
            metavar="ALIAS",
            help="the database that holds the jobs (default: where the router sends them)",
        )
        add("--reload", action="store_true", help="restart when code changes; for development")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reload"]:
            autoreload.run_with_reloader(self._run, **options)
        else:
            self._run(**options)

    def _run(self, **options: Any) -> None:
        worker = _build(options)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.request_stop())
        code = worker.run()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: a job that was given back may still run in its thread, and must not go on beside its successor.
        os._exit(code)


def _build(options: dict[str, Any]) -> Worker:
    queues, excluded = options["queues"], frozenset(options["excluded"])
    if queues and excluded:
        raise CommandError("--queue and --except can't be combined: --queue already leaves out all others")
    weights = dict(queues) if queues else None
    if weights and None in weights.values() and any(weights.values()):
        raise CommandError("give every --queue a weight, or none: --queue critical=6 --queue default=3")
    using = options["database"] or default_database()
    if using not in connections:
        raise CommandError(f"there is no database {using!r} in DATABASES; the aliases are {', '.join(connections)}")
    return Worker(
        using=using,
        queues=QueueOrder(weights=weights, excluded=excluded),
        threads=options["threads"],
        burst=options["burst"],
        shutdown_timeout=options["shutdown_timeout"],
    )


def _queue(text: str) -> tuple[str, int | None]:
    name, has_weight, weight = text.partition("=")
    if not name or (has_weight and not (weight.isdigit() and 1 <= int(weight) <= 1000)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=WEIGHT with a weight from 1 to 1000")
    return name, int(weight) if has_weight else None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)
