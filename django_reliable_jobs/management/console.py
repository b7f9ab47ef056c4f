"""What the long-running commands share with their terminal: log lines, and mistakes told before the work begins."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, OperationalError, ProgrammingError, connections

from django_reliable_jobs.engine import requirements
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Worker


class OneAlias(argparse.Action):
    """An option that names a database, once: a second alias would take the place of the first in silence.

    `way_out` tells what to do instead.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, *, way_out: str, help: str) -> None:
        super().__init__(option_strings, dest, metavar="ALIAS", help=help)
        self._way_out = way_out

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        if before is not None:
            raise argparse.ArgumentError(self, f"names {before} already: {self._way_out}")
        setattr(namespace, self.dest, values)


def aliases_of(given: Sequence[str] | str | None) -> list[str]:
    """Return what an option that may be repeated names; a caller in Python may give one alias as text.

    Raises CommandError if one is named twice.
    """
    aliases = [given] if isinstance(given, str) else list(given or ())
    if twice := [alias for number, alias in enumerate(aliases) if alias in aliases[:number]]:
        raise CommandError(f"--database names {twice[0]} twice")
    return aliases


def show_log(verbosity: int) -> None:
    """Show the log of the package in the terminal, unless the project's LOGGING does something with it.

    Verbosity 1 tells what starts, stops and fails; 2 also the end of each job; 0 only what needs attention.
    """
    logger = logging.getLogger("django_reliable_jobs")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))


def database_of(alias: str | None) -> str:
    """Return the alias to work on. Raises CommandError if there is none of that name, it is not PostgreSQL, it does not
    commit by itself, its server is too old, or it lacks our tables.

    A server that can't be reached is no mistake: the processes wait for it.
    """
    using = alias or default_database()
    if using not in connections:
        raise CommandError(f"there is no database {using!r} in DATABASES; the aliases are {', '.join(connections)}")
    if (mistake := requirements.engine_mistake(connections[using])) is not None:
        raise CommandError(str(mistake))
    if not connections[using].settings_dict["AUTOCOMMIT"]:
        raise CommandError(
            f"the database {using!r} has AUTOCOMMIT = False, so nothing that a worker writes would be committed:"
            " leave it out in the settings that the workers run on"
        )
    if (mistake := requirements.version_mistake(connections[using])) is not None:
        raise CommandError(str(mistake))
    try:
        Worker.objects.using(using).exists()
    except ProgrammingError as error:
        if getattr(error.__cause__, "sqlstate", None) != "42P01":  # undefined_table
            raise
        missing = str(error).splitlines()[0]
        raise CommandError(
            f"the database {using!r} lacks a table ({missing}). Run: {migrate_command(using)}"
        ) from error
    except OperationalError:
        pass
    finally:
        connections[using].close()
    return using


def migrate_command(using: str) -> str:
    """Return what makes our tables in a database."""
    return "manage.py migrate" if using == DEFAULT_DB_ALIAS else f"manage.py migrate --database {using}"
