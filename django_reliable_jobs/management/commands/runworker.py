from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import autoreload

from django_reliable_jobs import logs, notify
from django_reliable_jobs.engine import tick
from django_reliable_jobs.management import reloading
from django_reliable_jobs.management.console import aliases_of, database_of, show_log
from django_reliable_jobs.management.jobs.arguments import queue_name
from django_reliable_jobs.management.probing import add_health_port, fleet_pages, start_probe, worker_pages
from django_reliable_jobs.processes import connections
from django_reliable_jobs.processes.memory import parse_bytes
from django_reliable_jobs.processes.probe import complaints_of
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.scheduler import Scheduler
from django_reliable_jobs.processes.supervisor import Supervisor, stop_with_parent
from django_reliable_jobs.processes.vitals import Vitals
from django_reliable_jobs.processes.worker import Worker

SCHEDULER_SECONDS = 3.0  # to resign
OF_SUPERVISOR = ("--processes", "--health-port", "--database")


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
            type=queue_name,
            metavar="NAME",
            dest="excluded",
            default=[],
            help="serve all but this queue",
        )
        add(
            "--processes",
            type=_positive,
            default=1,
            metavar="N",
            help="worker processes under a supervisor, for each database (default: 1)",
        )
        add(
            "--threads",
            type=_positive,
            default=8,
            metavar="N",
            help="jobs that run at once (default: 8)",
        )
        add(
            "--with-scheduler",
            action="store_true",
            help="run a scheduler too, so that no `runscheduler` is needed; with --burst: make what is due, then work",
        )
        add("--burst", action="store_true", help="run what is ready or due, then exit")
        add(
            "--shutdown-timeout",
            type=_timeout,
            default=25.0,
            metavar="SECONDS",
            help="how long running jobs may go on after SIGTERM before they are given back (default: 25)",
        )
        add("--max-jobs", type=_positive, metavar="N", help="recycle a process after so many jobs")
        add(
            "--max-memory",
            type=_size,
            metavar="SIZE",
            help="recycle a process that has grown over this size, for example 512M, after its running jobs",
        )
        add(
            "--database",
            action="append",
            metavar="ALIAS",
            help="the database that holds the jobs (default: where the router sends them); repeat for more, each with"
            " worker processes of its own",
        )
        add_health_port(parser)
        add("--reload", action="store_true", help="restart when code changes; for development")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reload"] and options["processes"] > 1:
            raise CommandError("--reload runs one process: leave out --processes")
        aliases = aliases_of(options["database"])
        if options["reload"] and len(aliases) > 1:
            raise CommandError("--reload runs one process: name one --database")
        if options["reload"] and reloading.is_parent():
            sys.exit(reloading.run_children())
        show_log(options["verbosity"])
        logs.mark_handlers()
        connections.leave_pools()
        _run(aliases, options)


def _run(aliases: list[str], options: dict[str, Any]) -> None:
    is_fleet = options["processes"] > 1 or len(aliases) > 1
    process = _supervisor(aliases, options) if is_fleet else _worker(aliases, options)
    scheduler = None
    if isinstance(process, Worker):
        scheduler = _start_scheduler(options, process)
        process.before_leaving = lambda: _stop_scheduler(scheduler)

    def stop(*_: Any) -> None:
        process.request_stop()
        if scheduler is not None:
            scheduler.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    stop_with_parent(stop)
    changed = reloading.watch(stop) if options["reload"] else None
    if (port := options["health_port"]) is not None:
        pages = worker_pages(process) if isinstance(process, Worker) else fleet_pages(process.databases)
        start_probe(port, lambda: _complaints(process, scheduler), pages=pages)
    code = process.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a job that was given back may still run in its thread, and must not go on beside its successor.
    os._exit(reloading.RELOAD if changed is not None and changed.is_set() else code)


def _complaints(process: Supervisor | Worker, scheduler: Scheduler | None) -> list[str]:
    if isinstance(process, Supervisor):
        return process.complaints()
    return complaints_of([*process.own_threads(), *(scheduler.own_threads() if scheduler is not None else ())])


def _start_scheduler(options: dict[str, Any], worker: Worker) -> Scheduler | None:
    """Run a scheduler beside the worker, which stops when that dies; in a burst, only make what is due."""
    if not options["with_scheduler"]:
        return None
    if options["burst"]:
        worker.before_beginning = lambda: _make_what_is_due(worker)
        return None
    scheduler = Scheduler(
        using=worker.using,
        on_stuck=lambda: worker.recycle("its scheduler does not turn any more", patiently=False),
        channels=notify.channels(),
    )
    scheduler.start(lambda code: worker.recycle("its scheduler died", patiently=False) if code else None)
    return scheduler


def _make_what_is_due(worker: Worker) -> None:
    while tick.tick(worker.using).due:
        worker.vitals.turned()


def _stop_scheduler(scheduler: Scheduler | None) -> None:
    if scheduler is not None:
        scheduler.request_stop()
        scheduler.join(timeout=SCHEDULER_SECONDS)


def _worker(aliases: list[str], options: dict[str, Any]) -> Worker:
    queues = _queues(options)  # a mistake in the words is told first
    return Worker(
        using=database_of(aliases[0] if aliases else None),
        queues=queues,
        threads=options["threads"],
        burst=options["burst"],
        shutdown_timeout=options["shutdown_timeout"],
        max_jobs=options["max_jobs"],
        max_memory=options["max_memory"],
        vitals=Vitals.of_this_process(),
    )


def _supervisor(aliases: list[str], options: dict[str, Any]) -> Supervisor:
    _queues(options)  # a mistake is told here, once, and not by every child
    chosen: list[str | None] = [*aliases] or [None]
    databases = {database_of(alias): alias for alias in chosen}
    words = autoreload.get_child_arguments()
    return Supervisor(
        commands={using: command_of_child(words, alias) for using, alias in databases.items()},
        processes=options["processes"],
        shutdown_timeout=options["shutdown_timeout"],
        max_memory=options["max_memory"],
        burst=options["burst"],
    )


def command_of_child(words: Sequence[str], alias: str | None) -> list[str]:
    """Return the words of a supervisor's command as a child gets them: without what the supervisor itself answers for,
    and with the child's database.
    """
    kept: list[str] = []
    left = iter(words)
    for word in left:
        option, is_inline, _ = word.partition("=")
        if len(option) > 2 and any(each.startswith(option) for each in OF_SUPERVISOR):  # argparse takes beginnings, too
            if not is_inline:
                next(left)
        else:
            kept.append(word)
    return kept if alias is None else [*kept, "--database", alias]


def _queues(options: dict[str, Any]) -> QueueOrder:
    queues, excluded = options["queues"], frozenset(options["excluded"])
    if queues and excluded:
        raise CommandError("--queue and --except can't be combined: --queue already leaves out all others")
    weights = dict(queues) if queues else None
    if weights and len(weights) < len(queues):
        twice = next(name for name, _ in queues if [each for each, _ in queues].count(name) > 1)
        raise CommandError(f"--queue names {twice} twice")
    if weights and None in weights.values() and any(weights.values()):
        raise CommandError("give every --queue a weight, or none: --queue critical=6 --queue default=3")
    return QueueOrder(weights=weights, excluded=excluded)


def _queue(text: str) -> tuple[str, int | None]:
    name, has_weight, weight = text.partition("=")
    if not name or (has_weight and not (weight.isdigit() and 1 <= int(weight) <= 1000)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=WEIGHT with a weight from 1 to 1000")
    return queue_name(name), int(weight) if has_weight else None


def _timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
