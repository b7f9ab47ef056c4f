"""`jobs pause`, `jobs resume`: whether the jobs of a queue are claimed."""

from __future__ import annotations

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
    parser.add_argument("queues", nargs="+", type=queue_name, metavar="QUEUE")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--for", type=as_argument(parse_span), dest="span", metavar="SPAN", help="90s, 15m, 2h, 2d")
    end.add_argument(
        "--until", type=as_argument(parse_moment), metavar="MOMENT", help="2030-01-31T08:00, in the project's time zone"
    )


def add_resume(verbs: Verbs) -> None:
    parser = add_verb(verbs, "resume", resume, "Let the jobs of paused queues start again.")
    parser.add_argument("queues", nargs="+", type=queue_name, metavar="QUEUE")


def pause(using: str, options: Options) -> Report:
    resume_at = _end_of_pause(using, options)
    known = {each.name for each in inspection.queues(using)}
    done = queues.pause(using, options["queues"], resume_at)
    until = f"until {as_local(resume_at)}" if resume_at else "until resumed"
    unknown = sorted(set(options["queues"]) - known)
    return Report(
        data={
            "paused": done.paused,
            "paused_before": done.paused_before,
            "resume_at": resume_at,
            "unknown": unknown,
        },
        lines=[
            *(f"Paused {until}: {name}" for name in done.paused),
            *(f"Paused before, and now {until}: {name}" for name in done.paused_before),
            *(_unknown_queue(name, known) for name in unknown),
        ],
    )


def resume(using: str, options: Options) -> Report:
    resumed = queues.resume(using, options["queues"])
    others = sorted(set(options["queues"]) - set(resumed))
    return Report(
        data={"resumed": resumed, "not_paused": others},
        lines=[*(f"Resumed: {name}" for name in resumed), *(f"Was not paused: {name}" for name in others)],
    )


def _end_of_pause(using: str, options: Options) -> datetime | None:
    now = inspection.now(using)
    if options["span"] is not None:
        moment: datetime = now + options["span"]
        return moment
    until: datetime | None = options["until"]
    if until is not None and until <= now:
        raise CommandError(f"--until {as_local(until)} has passed: nothing was paused.")
    return until


def _unknown_queue(name: str, known: set[str]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the known queues are {', '.join(sorted(known)) or 'none'}."
    return f"No job, task or worker names the queue {name}: {hint}"
