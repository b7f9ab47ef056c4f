"""The figures for people and, as JSON, for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import django
import psycopg

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.rounds import Comparison, Run, Spread
from testproject.benchmarks.server import SETTINGS

# What explains a figure, in this order.
SHOWN = {
    "client_us_per_job": "caller {:.1f} us/job",
    "worker_us_per_job": "worker {:.1f} us/job",
    "postgres_us_per_job": "PostgreSQL {:.1f} us/job",
    "worker_cores": "worker {:.2f} cores",
    "postgres_cores": "PostgreSQL {:.2f} cores",
    "statements_per_job": "{:.3f} statements/job",
    "commits_per_job": "{:.3f} commits/job",
    "wal_bytes_per_job": "{:.0f} bytes of WAL/job",
    "p50": "p50 {:.2f} ms",
    "p90": "p90 {:.2f} ms",
    "p99": "p99 {:.2f} ms",
    "most": "most {:.2f} ms",
    "worker_percent_of_a_core": "worker {:.2f} % of a core",
    "postgres_percent_of_a_core": "PostgreSQL {:.2f} % of a core",
    "resident_mib": "{:.0f} MiB",
    "scheduler_us_per_job": "scheduler {:.0f} us/job",
    "next_due_after_ms": "the next due moment found in {:.2f} ms",
    "first_us": "the first, parsed with it, {:.0f} us",
    "reports_running": "{:.0f} jobs were running",
    "first_job_after_ms": "a job then starts after {:.1f} ms",
    "statements": "{:.0f} statements",
    "listed": "{:.0f} jobs listed",
    "outside_cores": "others on the machine {:.2f} cores",
    "stolen_cores": "stolen {:.2f}",
}
NOISE_CORES = 0.15


def lines(comparison: Comparison) -> Iterator[str]:
    """Return a comparison as lines of text."""
    yield f"{comparison.measure} ({comparison.unit})" + (f"; goal: {comparison.goal}" if comparison.goal else "")
    for label, runs in comparison.runs.items():
        yield f"   {label:<34} {_spread(comparison.spread(label))}"
        if explained := _explained(runs):
            yield f"      {explained}"
    for name, values in comparison.ratios.items():
        yield f"   {name:<34} {_spread(Spread.of(values))}"
    noisy = sum(run.details.get("outside_cores", 0) > NOISE_CORES for runs in comparison.runs.values() for run in runs)
    if noisy:
        yield f"   noisy: others used more than {NOISE_CORES} of a core in {noisy} runs; trust ratios and us/job only"


def as_json(bench: Bench, comparisons: list[Comparison]) -> dict[str, Any]:
    """Return everything that was seen, and under which settings."""
    environments = bench.arena.environments
    contestants = [bench.ours, *bench.peers]
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "load": os.getloadavg()},
        "versions": {
            "python": platform.python_version(),
            "django": django.get_version(),
            "psycopg": psycopg.__version__,
            "postgresql": bench.arena.server.version(),
        },
        "postgresql_settings": SETTINGS,
        "contestants": {
            each.name: {
                "settings": each.settings.format(concurrency=each.concurrency),
                "packages": environments.versions(each),
            }
            for each in contestants
        },
        "rounds": bench.rounds,
        "comparisons": [each.as_json() for each in comparisons],
    }


def _spread(spread: Spread) -> str:
    return f"{_number(spread.median)}  ({_number(spread.least)} to {_number(spread.most)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _explained(runs: list[Run]) -> str:
    known = [name for name in SHOWN if all(name in run.details for run in runs)]
    return ", ".join(SHOWN[name].format(Spread.of([run.details[name] for run in runs]).median) for name in known)
