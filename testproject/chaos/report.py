"""What is told of a run: a table for people, JSON for the record."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import django
import psycopg

from testproject.chaos.run import Result


def as_json(result: Result) -> str:
    """Return everything that is known about the run, and what it ran on."""
    return json.dumps(
        {
            "options": asdict(result.options),
            "environment": _environment(),
            "seconds": result.seconds,
            "violence": {"acts": dict(result.act_counts), "timeline": [asdict(act) for act in result.acts]},
            "transactions": dict(result.transactions),
            "jobs": result.jobs,
            "attempts": result.attempts,
            "exits": dict(result.exits),
            "notes": result.notes,
            "findings": [asdict(finding) for finding in result.findings],
        },
        indent=1,
    )


def as_table(result: Result) -> Iterator[str]:
    """Yield the lines of a report for people."""
    yield from _counts("Violence", result.act_counts)
    yield from _counts("Transactions of the producers", result.transactions)
    yield ""
    header = ("Kind of work", "jobs", "succeeded", "dead", "cancelled", "claimed more than once", "lost a worker")
    yield f"{header[0]:<14}" + "".join(f"{name:>{len(name) + 2}}" for name in header[1:])
    for kind, counts in result.jobs.items():
        yield f"{kind:<14}" + "".join(f"{counts[name]:>{len(name) + 2}}" for name in header[1:])
    yield from _counts("Attempts in the history", result.attempts)
    yield from _counts("Exits of processes, by code", result.exits)
    yield ""
    yield "Seconds: " + ", ".join(f"{name} {seconds}" for name, seconds in result.seconds.items())
    for note in result.notes:
        yield f"Note: {note}"
    yield f"{len(result.findings)} findings" if result.findings else "The audit is clean."
    for finding in result.findings:
        yield f"  - {finding}"


def _counts(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield ""
    yield title
    for name, count in counts.items():
        yield f"  {name:<44}{count:>8}"


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "django": django.get_version(),
        "psycopg": psycopg.__version__,
        "processors": os.cpu_count(),
        "system": platform.platform(),
    }
