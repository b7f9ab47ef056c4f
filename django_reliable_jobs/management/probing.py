"""`--health-port` of the processes that run on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from django.core.management.base import CommandError

from django_reliable_jobs.processes.probe import Complaints, Page, Probe


def add_health_port(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command."""
    parser.add_argument(
        "--health-port",
        type=port_number,
        metavar="PORT",
        help="answer HTTP at this port: 200 while the loops of the process turn, otherwise 503",
    )


def start_probe(port: int | None, complaints: Complaints, *, pages: Mapping[str, Page] | None = None) -> None:
    """Answer at the port, if there is one. Raises CommandError if it is taken."""
    if port is not None:
        try:
            Probe(port, complaints, pages=pages).start()
        except OSError as error:
            raise CommandError(f"--health-port {port} can't be used: {error.strerror or error}") from error


def port_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)
