"""Arguments that several verbs take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from django_reliable_jobs.declaration import Declaration
from django_reliable_jobs.exceptions import InvalidTask
from django_reliable_jobs.management.console import OneAlias
from django_reliable_jobs.management.jobs.report import Report

T = TypeVar("T")

Options = dict[str, Any]
Verb = Callable[[str, Options], Report]
# What argparse calls the object that add_subparsers() returns.
Verbs = Any

LARGEST_ID = 2**63 - 1


def add_verb(verbs: Verbs, name: str, run: Verb, description: str) -> argparse.ArgumentParser:
    """Add a verb with the arguments that every verb takes."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=description, description=description)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="answer in JSON, for scripts")
    parser.add_argument(
        "--database",
        action=OneAlias,
        way_out="run the command once for each",
        help="the database that holds the jobs (default: where the router sends them)",
    )
    # Django's own options, where people write them: after the verb. Only what is given here counts.
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument("-v", "--verbosity", type=int, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def add_filters(parser: argparse.ArgumentParser, statuses: list[str]) -> None:
    """Add the arguments that choose jobs by what they are."""
    parser.add_argument("--status", type=str.upper, choices=statuses, help="only with this status")
    parser.add_argument("--queue", metavar="NAME", help="only of this queue")
    parser.add_argument("--task", metavar="NAME", help="only of this task, by its full name")


def job_id(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= LARGEST_ID:
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of a job")
    return number


def count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 10000")
    return number


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.01 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.01 to 3600")
    return number


def queue_name(text: str) -> str:
    try:
        return Declaration("").queue_name(text)
    except InvalidTask as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from None


def as_argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse show the message of a ValueError."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed
