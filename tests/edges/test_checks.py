"""What `manage.py check` says about a project, and that nothing else falls over when it is set up wrongly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core import checks as django_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import override_settings

from django_reliable_jobs import checks, emit_event, registry, task
from django_reliable_jobs.engine import schedules
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job
from tests import tasks

CHECKOUT = Path(__file__).resolve().parent.parent.parent


def run_checks() -> list[django_checks.CheckMessage]:
    return django_checks.run_checks(tags=[checks.TAG])


def bury(job_id: int) -> None:
    pass


def charge() -> None:
    pass


class JobsElsewhere:
    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "jobs" if model is Job else None


@pytest.fixture
def jobs_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Route jobs to a second database alias; return its settings."""
    database = {**connections.settings["default"]}
    monkeypatch.setitem(connections.settings, "jobs", database)
    with override_settings(DATABASE_ROUTERS=["tests.edges.test_checks.JobsElsewhere"]):
        yield database
    del connections["jobs"]


def test_a_right_project_hears_nothing() -> None:
    assert run_checks() == []


def test_each_mistake_in_the_settings_is_an_error() -> None:
    with override_settings(RELIABLE_JOBS={"MAX_ATTEMPTS": 0, "LISTN": "off"}):
        messages = run_checks()
    assert [each.id for each in messages] == ["reliable_jobs.E001"] * 2
    assert "did you mean 'LISTEN'?" in messages[0].msg
    assert "MAX_ATTEMPTS" in messages[1].msg
    assert all(each.level == django_checks.ERROR and each.hint for each in messages)


@pytest.mark.parametrize("name", ["RELIABLE_JOB", "RELIABLE_JOBS_", "RELAIBLE_JOBS", "DJANGO_RELIABLE_JOBS"])
def test_settings_under_a_name_that_nobody_reads_are_a_warning(name: str) -> None:
    with override_settings(**{name: {"MAX_ATTEMPTS": 3}}):
        assert run_checks() == [], "the settings are there too: the other name is somebody else's"
        del django_settings.RELIABLE_JOBS
        [message] = run_checks()
    assert (message.id, message.level) == ("reliable_jobs.W002", django_checks.WARNING)
    assert f"setting {name}: did you mean RELIABLE_JOBS?" in message.msg


@pytest.mark.parametrize("name", ["RELIABLE_MODELS", "RELIABLE_JOBS_OF_THE_SHOP", "JOBS"])
def test_a_project_without_settings_for_it_may_have_others_like_them(name: str) -> None:
    with override_settings(**{name: {}}):
        del django_settings.RELIABLE_JOBS
        assert run_checks() == []


def test_naive_times_are_an_error() -> None:
    with override_settings(USE_TZ=False):
        [message] = run_checks()
    assert (message.id, message.level) == ("reliable_jobs.E002", django_checks.ERROR)
    assert "USE_TZ = True" in message.msg


def test_another_engine_is_an_error_that_names_the_alias(jobs_elsewhere: dict[str, Any]) -> None:
    jobs_elsewhere["ENGINE"] = "django.db.backends.sqlite3"
    [message] = run_checks()
    assert (message.id, message.level) == ("reliable_jobs.E003", django_checks.ERROR)
    assert "the database 'jobs' is sqlite" in message.msg


EVERY_WAY: dict[str, Callable[[], Any]] = {
    "enqueue": lambda: tasks.nothing.enqueue(),
    "unique": lambda: tasks.unique.enqueue("key"),
    "later": lambda: tasks.nothing.using(run_after=timedelta(hours=1)).enqueue(),
    "many": lambda: tasks.nothing.enqueue_many([{}]),
    "event": lambda: emit_event("name", None),
    "schedule": lambda: schedules.pause(default_database(), [1]),
}


@pytest.mark.django_db
@pytest.mark.parametrize("act", EVERY_WAY.values(), ids=EVERY_WAY)
def test_where_no_checks_run_the_first_statement_says_the_same(act: Callable[[], Any]) -> None:
    with override_settings(USE_TZ=False):
        [message] = run_checks()
        with pytest.raises(ImproperlyConfigured) as caught:
            act()
    assert str(caught.value) == f"{message.msg} {message.hint}"


@pytest.mark.parametrize("act", EVERY_WAY.values(), ids=EVERY_WAY)
def test_and_of_another_engine(act: Callable[[], Any], jobs_elsewhere: dict[str, Any]) -> None:
    jobs_elsewhere["ENGINE"] = "django.db.backends.sqlite3"
    [message] = run_checks()
    with pytest.raises(ImproperlyConfigured) as caught:
        act()
    assert str(caught.value) == f"{message.msg} {message.hint}"


class OldServer:
    """Answers as PostgreSQL 13 does, and Django refuses it or lets it pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool) -> None:
        connection.close()
        monkeypatch.setitem(vars(connections["default"]), "pg_version", 130011)
        if not is_refused:
            monkeypatch.setattr(type(connection.features), "minimum_database_version", (13,))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_refused", [True, False])
def test_an_old_server_is_an_error_when_the_database_is_checked(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    with monkeypatch.context() as patch:
        OldServer(patch, is_refused=is_refused)
        assert run_checks() == []
        assert django_checks.run_checks() == [], "it takes --database to ask the server"
        [message] = django_checks.run_checks(tags=[django_checks.Tags.database], databases=["default"])
        assert (message.id, message.level) == ("reliable_jobs.E006", django_checks.ERROR)
        assert "needs PostgreSQL 14 or later on the database 'default'" in message.msg
        assert "13.11" in message.msg
        for command in ("runworker", "runscheduler"):
            with pytest.raises(CommandError, match=r"needs PostgreSQL 14 or later .* Upgrade the server"):
                call_command(command, skip_checks=True, verbosity=0)
        connection.close()
    assert django_checks.run_checks(tags=[django_checks.Tags.database], databases=["default"]) == []


@pytest.mark.django_db
@pytest.mark.parametrize("command", ["runworker", "runscheduler"])
def test_a_database_that_does_not_commit_by_itself_is_refused(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setitem(connections.settings["default"], "AUTOCOMMIT", False)
    with pytest.raises(CommandError, match="AUTOCOMMIT = False"):
        call_command(command, skip_checks=True, verbosity=0)


def test_jobs_in_another_database_than_the_business_rows_are_a_warning(jobs_elsewhere: dict[str, Any]) -> None:
    [message] = run_checks()
    assert (message.id, message.level) == ("reliable_jobs.W001", django_checks.WARNING)
    assert "Jobs are written to the database 'jobs', the project's other rows to 'default'" in message.msg
    assert "a rollback leaves the job behind" in str(message.hint)


def test_an_on_dead_that_no_task_is_declared_for_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", {})
    task(name="shop.charge", on_dead="shop.bury")(charge)
    [message] = run_checks()
    assert (message.id, message.level) == ("reliable_jobs.E004", django_checks.ERROR)
    assert "'shop.charge' names on_dead='shop.bury'" in message.msg
    task(name="cemetery.bury", aliases=["shop.bury"])(bury)
    assert run_checks() == []


SETTINGS: dict[str, str] = {
    "SECRET_KEY": "'x'",
    "INSTALLED_APPS": "['django_reliable_jobs']",
    "DATABASES": "{'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': 'unused'}}",
    "DEFAULT_AUTO_FIELD": "'django.db.models.BigAutoField'",
    "USE_TZ": "True",
}


@pytest.fixture
def manage(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a management command in a project of its own with the given settings."""

    def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        lines = [f"{name} = {value}" for name, value in {**SETTINGS, **settings}.items()]
        (tmp_path / "settings.py").write_text("\n".join(lines))
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "django", *arguments],
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{CHECKOUT}", "DJANGO_SETTINGS_MODULE": "settings"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


Manage = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("reliable_jobs", "said"),
    [
        ("{'MAX_ATTEMPS': 3}", "RELIABLE_JOBS has no key 'MAX_ATTEMPS': did you mean 'MAX_ATTEMPTS'?"),
        ("{'TASK_MODULES': 'shop.jobs'}", "RELIABLE_JOBS['TASK_MODULES'] must be a list of dotted module paths"),
        ("{'LEASE_SECONDS': 'x', 'TASK_MODULES': ['absent']}", "RELIABLE_JOBS['LEASE_SECONDS'] must be a number"),
        ("None", "RELIABLE_JOBS must be a dict, not NoneType."),
        ("[1]", "RELIABLE_JOBS must be a dict, not list."),
    ],
)
def test_manage_check_shows_a_mistake_in_the_settings_and_no_traceback(
    manage: Manage, reliable_jobs: str, said: str
) -> None:
    result = manage("check", RELIABLE_JOBS=reliable_jobs)
    assert result.returncode == 1
    assert f"?: (reliable_jobs.E001) {said}" in result.stderr
    assert "System check identified 1 issue" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_worker_does_not_start_on_wrong_settings(manage: Manage) -> None:
    result = manage("runworker", RELIABLE_JOBS="{'LEASE_SECONDS': 0}")
    assert result.returncode == 1
    assert "(reliable_jobs.E001) RELIABLE_JOBS['LEASE_SECONDS'] must be" in result.stderr
    assert "Traceback" not in result.stderr


def test_another_engine_is_the_only_thing_said_of_a_project_on_sqlite(manage: Manage) -> None:
    result = manage("check", DATABASES="{'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}")
    assert result.returncode == 1
    assert (
        "(reliable_jobs.E003) django_reliable_jobs needs PostgreSQL, but the database 'default' is sqlite"
        in result.stderr
    )
    assert "System check identified 1 issue" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_project_without_databases_hears_that_it_needs_postgresql(manage: Manage) -> None:
    result = manage("check", DATABASES="{}")
    assert "(reliable_jobs.E003) django_reliable_jobs needs PostgreSQL" in result.stderr
    assert "Traceback" not in result.stderr


def test_all_mistakes_are_shown_at_once(manage: Manage) -> None:
    result = manage(
        "check",
        USE_TZ="False",
        RELIABLE_JOBS="{'x': 1}",
        DATABASES="{'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}",
    )
    assert [code for code in ("E001", "E002", "E003") if f"reliable_jobs.{code}" in result.stderr] == [
        "E001",
        "E002",
        "E003",
    ]


def test_a_right_project_of_its_own_hears_nothing(manage: Manage) -> None:
    result = manage("check", "--fail-level", "WARNING")
    assert (result.returncode, result.stderr) == (0, "")
