"""`--health-port` of the processes that run on."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping, Sequence

from django.core.management.base import CommandError

from django_reliable_jobs.processes.probe import Complaints, Page, Probe
from django_reliable_jobs.processes.worker import Worker


def add_health_port(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command."""
    parser.add_argument(
        "--health-port",
        type=port_number,
        metavar="PORT",
        help="answer HTTP at this port: 200 while the loops of the process turn, otherwise 503",
    )


def start_probe(port: int, complaints: Complaints, *, pages: Mapping[str, Page]) -> None:
    """Answer at the port. Raises CommandError if it is taken."""
    try:
        Probe(port, complaints, pages=pages).start()
    except OSError as error:
        raise CommandError(f"--health-port {port} can't be used: {error.strerror or error}") from error


def worker_pages(worker: Worker) -> dict[str, Page]:
    """Return the metrics of a worker, if the extra `metrics` is installed."""
    if importlib.util.find_spec("prometheus_client") is None:
        return {}
    from django_reliable_jobs import metrics

    return metrics.worker_pages(worker.tally)


def fleet_pages(databases: Sequence[str]) -> dict[str, Page]:
    """Return the metrics of the fleet in each database, if the extra `metrics` is installed."""
    if importlib.util.find_spec("prometheus_client") is None:
        return {}
    from django_reliable_jobs import metrics

    return metrics.fleet_pages(databases)


def port_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)
