"""What the long-running commands share with their terminal: log lines, and mistakes told before the work begins."""

from __future__ import annotations

import logging

from django.core.management.base import CommandError
from django.db import OperationalError, ProgrammingError, connections

from django_reliable_jobs.engine import requirements
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Worker


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
    """Return the alias to work on. Raises CommandError if there is none of that name, it does not commit by itself,
    its server is too old, or it lacks our tables.

    A server that can't be reached is no mistake: the processes wait for it.
    """
    using = alias or default_database()
    if using not in connections:
        raise CommandError(f"there is no database {using!r} in DATABASES; the aliases are {', '.join(connections)}")
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
        raise CommandError(f"the database {using!r} lacks a table ({missing}). Run: manage.py migrate") from error
    except OperationalError:
        pass
    finally:
        connections[using].close()
    return using
