"""Run a job in an empty Django project into which the wheel was installed.

`python check_wheel.py WHEEL`, by the Python it is installed for and with DATABASE_URL set. The
folder and the database that it makes are removed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

DATABASE = "reliable_jobs_wheel"
WANTED = [
    "apps.py",
    "py.typed",
    "migrations/0001_initial.py",
    "management/commands/runworker.py",
    "backend/__init__.py",
    "locale/de/LC_MESSAGES/django.mo",
    "static/django_reliable_jobs/admin.css",
    "templates/admin/django_reliable_jobs/overview.html",
]
TASKS = """
from django_reliable_jobs import task


@task()
def double(number):
    return 2 * number
"""
ENQUEUE = """
from django.db import transaction
from work.tasks import double

with transaction.atomic():
    double.enqueue(21)
"""
CHECK = """
from django_reliable_jobs.models import Job

job = Job.objects.latest("id")
assert (job.status, job.result) == ("SUCCEEDED", 42), (job.status, job.result)
print("ran:", job, job.status, job.result)
"""

# An app that knows Django's Tasks framework only.
FRAMEWORK_TASKS = """
from django.tasks import task


@task(takes_context=True)
def greet(context, name):
    return [name, context.attempt]
"""
FRAMEWORK_ENQUEUE = """
from letters.tasks import greet

print(greet.enqueue("Ada").id)
"""
FRAMEWORK_CHECK = """
from django_reliable_jobs.models import Job
from letters.tasks import greet

result = greet.get_result(str(Job.objects.latest("id").pk))
assert (result.status, result.return_value) == ("SUCCESSFUL", ["Ada", 1]), result
print("ran:", result.task.module_path, result.status, result.return_value)
"""


def check_contents(wheel: str) -> None:
    """The package with all it needs, and nothing beside it."""
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in WANTED if f"django_reliable_jobs/{name}" not in names]
    tops = {name.partition("/")[0] for name in names}
    stray = {top for top in tops if top != "django_reliable_jobs" and ".dist-info" not in top}
    if missing or stray:
        sys.exit(f"The wheel lacks {missing} and has {stray} too many.")


def make_project(folder: Path, server: dict[str, str]) -> None:
    """Do what the documentation tells a newcomer to do."""
    subprocess.run([sys.executable, "-m", "django", "startproject", "shop", folder], check=True)
    manage(folder, "startapp", "work")
    (folder / "work" / "tasks.py").write_text(TASKS)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": DATABASE,
        "USER": server.get("user", ""),
        "PASSWORD": server.get("password", ""),
        "HOST": server.get("host", ""),
        "PORT": server.get("port", ""),
    }
    with (folder / "shop" / "settings.py").open("a") as settings:
        settings.write('\nINSTALLED_APPS += ["django_reliable_jobs", "work"]\n')
        settings.write(f"DATABASES = {{'default': {database!r}}}\n")


def switch_to_our_backend(folder: Path) -> None:
    """Do with a project that uses Django's Tasks framework only what its page says."""
    manage(folder, "startapp", "letters")
    (folder / "letters" / "tasks.py").write_text(FRAMEWORK_TASKS)
    with (folder / "shop" / "settings.py").open("a") as settings:
        settings.write('\nINSTALLED_APPS += ["letters"]\n')
        settings.write("TASKS = {'default': {'BACKEND': 'django_reliable_jobs.backend.ReliableBackend'}}\n")


def manage(folder: Path, *arguments: str, python: str = sys.executable) -> None:
    """Run a command of the project."""
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    subprocess.run([python, "manage.py", *arguments], check=True, cwd=folder, env=environment)


@contextmanager
def empty_project() -> Iterator[Path]:
    """Yield a new project on a new database; both are removed."""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        try:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                make_project(folder, conninfo_to_dict(url))
                yield folder
        finally:
            connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def main(wheel: str) -> None:
    """Check the wheel's contents, then a job's way in an empty project."""
    check_contents(wheel)
    with empty_project() as folder:
        manage(folder, "check", "--fail-level", "WARNING")
        manage(folder, "migrate", "--verbosity", "0")
        manage(folder, "shell", "--verbosity", "0", "-c", ENQUEUE)
        manage(folder, "runworker", "--burst")
        manage(folder, "shell", "--verbosity", "0", "-c", CHECK)
        if find_spec("django.tasks") is not None:
            switch_to_our_backend(folder)
            manage(folder, "check", "--fail-level", "WARNING")
            manage(folder, "shell", "--verbosity", "0", "-c", FRAMEWORK_ENQUEUE)
            manage(folder, "runworker", "--burst")
            manage(folder, "shell", "--verbosity", "0", "-c", FRAMEWORK_CHECK)


if __name__ == "__main__":
    main(sys.argv[1])
