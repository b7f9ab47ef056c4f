"""The steps of a job in `jobs show`, and `jobs emit`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_reliable_jobs.engine import events, history
from django_reliable_jobs.engine.history import StepStatus
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb
from django_reliable_jobs.management.jobs.moments import moment_from, span
from django_reliable_jobs.management.jobs.report import Report, printable
from django_reliable_jobs.models import Job

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


def step_lines(steps: Sequence[StepStatus], run: int, now: datetime, *, is_undone: bool) -> list[str]:
    """Return steps for reading, in their order; with their undo if the job undoes, or has undone, what it did."""
    if not steps:
        return []
    lines = ["", "Steps" if run == 1 else f"Steps of run {run}"]
    for number, each in enumerate(steps, start=1):
        lines.append(f"  {number:>2}  {each.state:<8} {_told(each, now)}")
        if each.error:
            lines.append(f"{'':15}{printable(each.error)}")
        if is_undone and each.undo is not None:
            tries = f", {each.undo_tries} tries" if (each.undo_tries or 0) > 1 else ""
            error = f": {printable(each.undo_error)}" if each.undo_error and each.undo != "done" else ""
            lines.append(f"{'':15}undo: {each.undo}{tries}{error}")
    return lines


def family_data(using: str, job: Job) -> dict[str, Any]:
    """Return the parent, the children by status, and the batch of a job, for JSON."""
    children = history.children_of(using, job.pk)
    return {"parent_id": job.parent_id, "batch_id": job.batch_id, "children": children}


def family_lines(using: str, job: Job) -> list[str]:
    """Return the same for reading."""
    family = family_data(using, job)
    lines = []
    if family["parent_id"]:
        lines.append(f"  Child of job {family['parent_id']}")
    if family["batch_id"] and not family["parent_id"]:
        lines.append(f"  One of batch {family['batch_id']}")
    if family["children"]:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(family["children"].items()))
        lines.append(f"  Children: {counts}")
    return ["", *lines] if lines else []


def _told(step: StepStatus, now: datetime) -> str:
    what = {"step": "", "sleep": "sleep ", "event": "wait for the event ", "children": "wait for "}.get(
        step.kind, f"{step.kind} "
    )
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
