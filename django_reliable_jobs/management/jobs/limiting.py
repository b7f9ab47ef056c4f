"""`jobs limits`, `jobs limit`: how many jobs run at once, or start in a time, and what an operator says instead."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from django.core.management.base import CommandError

from django_reliable_jobs.engine import inspection, limits, queues
from django_reliable_jobs.engine.limits import LimitStatus
from django_reliable_jobs.limits import VALUE_FORMS, Value, read_value
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb, as_argument, count, queue_name
from django_reliable_jobs.management.jobs.moments import span
from django_reliable_jobs.management.jobs.report import Report, table


def add_limits(verbs: Verbs) -> None:
    add_verb(verbs, "limits", list_limits, "List the limits: the code's values, an operator's, how much is used.")


def add_limit(verbs: Verbs) -> None:
    parser = add_verb(verbs, "limit", limit, "Put another value in force for a limit, at once; or the code's again.")
    parser.add_argument("name", metavar="NAME", help="the limit, as `jobs limits` lists it, or with --queue a queue")
    parser.add_argument(
        "--queue", action="store_true", help="NAME is a queue: VALUE is how many of its jobs run at once"
    )
    parser.add_argument("value", nargs="?", type=as_argument(read_value), metavar="VALUE", help=VALUE_FORMS)
    parser.add_argument("--burst", type=count, metavar="N", help="starts at once after a rest")
    parser.add_argument("--reset", action="store_true", help="the code's value again; for a queue: no limit")


def list_limits(using: str, options: Options) -> Report:
    limits.declare(using, missing_only=True)
    found = limits.statuses(using)
    capped = [each for each in inspection.queues(using) if each.concurrency is not None]
    return Report(
        data={
            "limits": [limit_data(each) for each in found],
            "queues": [
                {"name": each.name, "concurrency": each.concurrency, "running": each.running} for each in capped
            ],
        },
        lines=[
            *(limit_lines(found, options["width"]) or ["No task has a limit."]),
            *(f"Queue {each.name}: {each.concurrency} jobs at once, {each.running} running" for each in capped),
        ],
    )


def limit_data(limit: LimitStatus) -> dict[str, Any]:
    """Return what a script may want to know of a limit."""
    return asdict(limit)


def limit_lines(found: Sequence[LimitStatus], width: int | None) -> list[str]:
    """Lay out limits as a table."""
    rows = [
        [each.name, each.kind, _code_value(each), each.override, each.running, each.waiting, _next_start(each)]
        for each in found
    ]
    headings = ["LIMIT", "KIND", "CODE", "INSTEAD", "RUNNING", "WAITING", "NEXT START"]
    return table(headings, rows, width=width, cut="LIMIT") if rows else []


def _code_value(limit: LimitStatus) -> str:
    return limit.value if limit.is_declared else f"undeclared: {limit.value}"


def _next_start(limit: LimitStatus) -> str | None:
    if limit.kind != "rate" or not limit.waiting:
        return None
    if limit.seconds_to_start is None:
        return "none"
    return f"in {span(timedelta(seconds=limit.seconds_to_start))}" if limit.seconds_to_start else "now"


def limit(using: str, options: Options) -> Report:
    value: Value | None = options["value"]
    if (value is None) != options["reset"]:
        raise CommandError("Give a value, or --reset.")
    if options["burst"] is not None and (value is None or value.period is None):
        raise CommandError("--burst goes with a rate: 600/m --burst 20")
    if options["queue"]:
        return _limit_queue(using, options["name"], value)
    limits.declare(using, missing_only=True)
    return (
        _reset(using, options["name"]) if value is None else _override(using, options["name"], value, options["burst"])
    )


def _override(using: str, name: str, value: Value, burst: int | None) -> Report:
    if not limits.override(using, value.kind, name, value.allowed, value.period, burst):
        raise CommandError(_unknown(using, name, value.kind))
    return _done(using, name, "in force now")


def _reset(using: str, name: str) -> Report:
    reset = [limits.reset(using, kind, name) for kind in ("concurrency", "rate")]  # both, if there are two
    if not any(reset):
        raise CommandError(_unknown(using, name, None))
    return _done(using, name, "as the code says")


def _limit_queue(using: str, text: str, value: Value | None) -> Report:
    try:
        name = queue_name(text)
    except ArgumentTypeError as error:
        raise CommandError(str(error)) from None
    if value is not None and value.period is not None:
        raise CommandError("A queue has a number of jobs at once, and no rate: give a whole number.")
    queues.limit(using, name, None if value is None else value.allowed)
    said = "no limit" if value is None else f"{value.allowed} jobs at once in the whole fleet"
    return Report({"queue": name, "concurrency": value and value.allowed}, [f"Queue {name}: {said}"])


def _done(using: str, name: str, what: str) -> Report:
    found = [each for each in limits.statuses(using) if each.name == name]
    return Report(
        data={"limits": [limit_data(each) for each in found]},
        lines=[
            f"{each.name}, {each.kind}: {each.override or each.value}, {what}"
            + (f"; the code says {each.value}" if each.override else "")
            for each in found
        ],
    )


def _unknown(using: str, name: str, kind: str | None) -> str:
    found = [each for each in limits.statuses(using) if each.is_declared]
    other = next((each for each in found if each.name == name), None)
    if other is not None:
        form = "10/s, 600/m or 1000/h" if other.kind == "rate" else "a whole number"
        return f"{name} is a {other.kind} limit ({other.value}): give it {form}."
    known = sorted({each.name for each in found})
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the limits are {', '.join(known) or 'none'}."
    return f"No task declares a limit {name}: {hint}"
