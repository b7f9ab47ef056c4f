"""What a project must be like for jobs to be possible: said by the system checks, and by the first statement where
those do not run, as under WSGI and ASGI.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.db import NotSupportedError, ProgrammingError
from django.db.backends.base.base import BaseDatabaseWrapper

LEAST_VERSION = 14

P = ParamSpec("P")
R = TypeVar("R")


class Mistake(NamedTuple):
    """What is wrong with a project, and the way out."""

    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


NAIVE = Mistake(
    "django_reliable_jobs needs USE_TZ = True.",
    "Due moments and leases are instants; naive local times are ambiguous twice a year.",
)


def require(connection: BaseDatabaseWrapper) -> None:
    """Raise ImproperlyConfigured if jobs can't live in this database, or in this project."""
    if connection.vendor == "postgresql" and django_settings.USE_TZ:
        return
    raise ImproperlyConfigured(str(engine_mistake(connection) or NAIVE))


def noting_migrate(function: Callable[P, R]) -> Callable[P, R]:
    """Have what the project calls add the way out to PostgreSQL's error that one of our tables, or a column, is not
    there. The error stays the same.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ProgrammingError as error:
            note_migrate(error)
            raise

    return called


def note_migrate(error: ProgrammingError) -> None:
    """Do for an error what `noting_migrate` does, where a call more is too many."""
    is_missing = getattr(error.__cause__, "sqlstate", None) in ("42P01", "42703")  # a table, a column
    if is_missing and "django_reliable_jobs_" in str(error):
        error.add_note(
            "The tables of django_reliable_jobs are not in this database as this version needs them."
            " Run: manage.py migrate"
        )


def engine_mistake(connection: BaseDatabaseWrapper) -> Mistake | None:
    """Return what is wrong with the kind of a database; it need not be reached."""
    if connection.vendor == "postgresql":
        return None
    return Mistake(
        f"django_reliable_jobs needs PostgreSQL, but the database {connection.alias!r} is {connection.vendor}.",
        "Point the alias at PostgreSQL 14 or later, or let a database router send the app to one that is.",
    )


def version_mistake(connection: BaseDatabaseWrapper) -> Mistake | None:
    """Return what is wrong with the version of a server; None also if it can't be reached, which others say."""
    try:
        connection.ensure_connection()
        version = connection.get_database_version()
    except NotSupportedError as error:  # said by Django, of which each version has its own least
        return _too_old(connection, str(error))
    except DatabaseError:
        return None
    if version >= (LEAST_VERSION,):
        return None
    return _too_old(connection, f"it is PostgreSQL {'.'.join(map(str, version))}")


def _too_old(connection: BaseDatabaseWrapper, what: str) -> Mistake:
    return Mistake(
        f"django_reliable_jobs needs PostgreSQL {LEAST_VERSION} or later on the database {connection.alias!r}: {what}.",
        "Upgrade the server, or let a database router send the app to one that is new enough.",
    )
