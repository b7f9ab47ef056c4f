"""`jobs pause`, `jobs resume`: whether the jobs of a queue are claimed."""

from __future__ import annotations

import argparse
from datetime import datetime
from difflib import get_close_matches

from django.core.management.base import CommandError

from django_reliable_jobs.engine import inspection, queues
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb, as_argument, queue_name
from django_reliable_jobs.management.jobs.moments import parse_moment, parse_span
from django_reliable_jobs.management.jobs.report import Report


def add_pause(verbs: Verbs) -> None:
    parser = add_verb(verbs, "pause", pause, "Let no more jobs of queues start; what was claimed before runs on.")
    _add_queues(parser, "every queue, also those to come")
    add_end(parser)


def add_end(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say when a pause ends by itself."""
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--for", type=as_argument(parse_span), dest="span", metavar="SPAN", help="90s, 15m, 2h, 2d")
    end.add_argument(
        "--until", type=as_argument(parse_moment), metavar="MOMENT", help="2030-01-31T08:00, in the project's time zone"
    )


def add_resume(verbs: Verbs) -> None:
    parser = add_verb(verbs, "resume", resume, "Let the jobs of paused queues start again.")
    _add_queues(parser, "end the pause of all; queues that were paused by name stay paused")


def _add_queues(parser: argparse.ArgumentParser, meaning_of_all: str) -> None:
    parser.add_argument("queues", nargs="*", type=queue_name, metavar="QUEUE")
    parser.add_argument("--all", action="store_true", help=meaning_of_all)


def _names(options: Options) -> list[str]:
    if bool(options["queues"]) == options["all"]:
        raise CommandError("Name queues, or say --all.")
    return [queues.ALL] if options["all"] else options["queues"]


def pause(using: str, options: Options) -> Report:
    names, resume_at = _names(options), end_of_pause(using, options)
    known = {queues.ALL, *(each.name for each in inspection.queues(using))}
    done = queues.pause(using, names, resume_at)
    until = f"until {as_local(resume_at)}" if resume_at else "until resumed"
    unknown = sorted(set(names) - known)
    return Report(
        data={
            "paused": done.paused,
            "paused_before": done.paused_before,
            "resume_at": resume_at,
            "unknown": unknown,
        },
        lines=[
            *(f"Paused {until}: {_shown(name)}" for name in done.paused),
            *(f"Paused before, and now {until}: {_shown(name)}" for name in done.paused_before),
            *(_unknown_queue(name, known) for name in unknown),
        ],
    )


def resume(using: str, options: Options) -> Report:
    names = _names(options)
    resumed = queues.resume(using, names)
    others = sorted(set(names) - set(resumed))
    by_name = [each.name for each in inspection.queues(using) if each.paused_at] if queues.ALL in resumed else []
    everything = [] if queues.ALL in resumed else [inspection.pause_of_all(using)]
    return Report(
        data={"resumed": resumed, "not_paused": others, "still_paused": by_name},
        lines=[
            *(f"Resumed: {_shown(name)}" for name in resumed),
            *(f"Was not paused: {_shown(name)}" for name in others),
            *(f"Still paused, by its name: {name}" for name in by_name),
            *("But all queues are paused: manage.py jobs resume --all" for each in everything if each is not None),
        ],
    )


def _shown(name: str) -> str:
    return "all queues" if name == queues.ALL else name


def end_of_pause(using: str, options: Options) -> datetime | None:
    """Return when a pause ends by itself; None: never. Raises CommandError for a moment that has passed."""
    now = inspection.now(using)
    if options["span"] is not None:
        moment: datetime = now + options["span"]
        return moment
    until: datetime | None = options["until"]
    if until is not None and until <= now:
        raise CommandError(f"--until {as_local(until)} has passed: nothing was paused.")
    return until


def _unknown_queue(name: str, known: set[str]) -> str:
    known = known - {queues.ALL}
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the known queues are {', '.join(sorted(known)) or 'none'}."
    return f"No job, task or worker names the queue {name}: {hint}"
