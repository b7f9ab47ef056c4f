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
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

DATABASE = "reliable_jobs_wheel"
WANTED = ["apps.py", "py.typed", "migrations/0001_initial.py", "management/commands/runworker.py"]
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

job = Job.objects.get()
assert (job.status, job.result) == ("SUCCEEDED", 42), (job.status, job.result)
print("ran:", job, job.status, job.result)
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


def manage(folder: Path, *arguments: str) -> None:
    """Run a command of the project."""
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    subprocess.run([sys.executable, "manage.py", *arguments], check=True, cwd=folder, env=environment)


def main(wheel: str) -> None:
    """Check the wheel's contents, then a job's way in an empty project."""
    check_contents(wheel)
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        try:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                make_project(folder, conninfo_to_dict(url))
                manage(folder, "check", "--fail-level", "WARNING")
                manage(folder, "migrate", "--verbosity", "0")
                manage(folder, "shell", "--verbosity", "0", "-c", ENQUEUE)
                manage(folder, "runworker", "--burst")
                manage(folder, "shell", "--verbosity", "0", "-c", CHECK)
        finally:
            connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


if __name__ == "__main__":
    main(sys.argv[1])
