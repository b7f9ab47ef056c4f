"""The steps of a job in `jobs show`, and `jobs emit`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_reliable_jobs.engine import events
from django_reliable_jobs.engine.history import StepStatus
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb
from django_reliable_jobs.management.jobs.moments import moment_from, span
from django_reliable_jobs.management.jobs.report import Report, printable

LONGEST_RESULT = 60  # characters of it in a line


def add_emit(verbs: Verbs) -> None:
    parser = add_verb(verbs, "emit", emit, "Emit an event, for which jobs wait with wait_for_event().")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "payload", metavar="JSON", nargs="?", default="null", help="what they are given (default: null)"
    )


def emit(using: str, options: Options) -> Report:
    name = options["name"]
    try:
        payload = json.loads(options["payload"])
    except ValueError as error:
        raise CommandError(f"The payload is no JSON ({error}). Text stands in quotes, inside those of the shell:"
                           """ '"text"', '{"tracking": "1Z"}'""") from None  # fmt: skip
    try:
        is_first = events.emit(name, payload, using=using)
    except InvalidArguments as error:
        raise CommandError(str(error)) from None
    if is_first:
        return Report({"emitted": True}, [f"Emitted {printable(name)}. Jobs that wait for it go on."])
    problem = f"An event {printable(name)} was emitted before, and stays as it was."
    return Report({"emitted": False}, failure=problem)


def step_data(steps: Sequence[StepStatus]) -> list[dict[str, Any]]:
    """Return steps for JSON."""
    return [{**asdict(each), "took": None if each.took is None else each.took.total_seconds()} for each in steps]


def step_lines(steps: Sequence[StepStatus], run: int, now: datetime) -> list[str]:
    """Return steps for reading, in their order."""
    if not steps:
        return []
    lines = ["", "Steps" if run == 1 else f"Steps of run {run}"]
    for number, each in enumerate(steps, start=1):
        lines.append(f"  {number:>2}  {each.state:<8} {_told(each, now)}")
        if each.error:
            lines.append(f"{'':15}{printable(each.error)}")
    return lines


def _told(step: StepStatus, now: datetime) -> str:
    what = {"step": "", "sleep": "sleep ", "event": "wait for the event "}.get(step.kind, f"{step.kind} ")
    parts = [f"{what}{printable(step.name)}"]
    if step.tries is not None and step.tries > 1:
        parts.append(f"{step.tries} tries")
    if step.took is not None:
        parts.append(f"took {span(step.took)}")
        if step.result is not None and step.state == "done":
            parts.append(f"-> {_shortened(step.result)}")
    else:
        parts.append(f"since {as_local(step.since)}")
        if step.until is not None:
            parts.append(f"until {moment_from(step.until, now=now)}")
    return ", ".join(parts)


def _shortened(value: Any) -> str:
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= LONGEST_RESULT else f"{text[:LONGEST_RESULT]}…"
