"""System checks: what would fail later, said at start, with the way out."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections, router

from django_reliable_jobs import conf, registry
from django_reliable_jobs.engine import requirements

TAG = "reliable_jobs"


def register() -> None:
    """Register the checks; called once the app is ready."""
    for check in (check_settings, check_name_of_settings, check_time_zone, check_database, check_on_dead):
        checks.register(check, TAG)
    checks.register(check_version, checks.Tags.database)


def check_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    return [
        checks.Error(
            mistake,
            hint="The keys and their defaults: docs/reference/settings.md, django_reliable_jobs.conf.Settings.",
            id="reliable_jobs.E001",
        )
        for mistake in conf.find_mistakes(getattr(django_settings, "RELIABLE_JOBS", {}))
    ]


def check_name_of_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    """A setting under a name that nobody reads is left out in silence, and with it what it was to change."""
    names = dir(django_settings)
    if "RELIABLE_JOBS" in names:
        return []
    guessed = [name for name in names if name == "DJANGO_RELIABLE_JOBS"]  # as the package is called
    return [
        checks.Warning(
            f"Nobody reads the setting {name}: did you mean RELIABLE_JOBS?",
            hint="Rename it, or silence this check if it belongs to something else.",
            id="reliable_jobs.W002",
        )
        for name in guessed or get_close_matches("RELIABLE_JOBS", names, n=1, cutoff=0.85)
    ]


def check_time_zone(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    if django_settings.USE_TZ:
        return []
    return [checks.Error(requirements.NAIVE.message, hint=requirements.NAIVE.hint, id="reliable_jobs.E002")]


def check_database(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    from django_reliable_jobs.models import Job

    alias = router.db_for_write(Job)
    if (mistake := requirements.engine_mistake(connections[alias])) is not None:
        return [checks.Error(mistake.message, hint=mistake.hint, id="reliable_jobs.E003")]
    if alias == DEFAULT_DB_ALIAS:
        return []
    return [
        checks.Warning(
            f"Jobs are written to the database {alias!r}, the project's other rows to {DEFAULT_DB_ALIAS!r}.",
            hint=(
                "A job is then not part of the transaction that enqueues it: a rollback leaves the job behind, and a"
                " crash between the two commits loses it. Keep jobs in the database of your business rows, or enqueue"
                " with .using(database=…) and silence this check if that is what you want."
            ),
            id="reliable_jobs.W001",
        )
    ]


def check_version(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[checks.CheckMessage]:
    """With `check --database` and `migrate` only, as Django does it: it asks the server."""
    from django_reliable_jobs.models import Job

    alias = router.db_for_write(Job)
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []
    mistake = requirements.version_mistake(connections[alias])
    return [checks.Error(mistake.message, hint=mistake.hint, id="reliable_jobs.E006")] if mistake else []


def check_on_dead(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    return [
        _mistake_in_on_dead(task)
        for task in registry.all_tasks()
        if isinstance(task.on_dead, str) and not _accepts_job_id(registry.find(task.on_dead))
    ]


def _mistake_in_on_dead(task: registry.Task[..., Any]) -> checks.CheckMessage:
    if registry.find(str(task.on_dead)) is None:
        return checks.Error(
            f"The task {task.name!r} names on_dead={task.on_dead!r}, but no task is declared under that name.",
            hint="Declare it, or correct the name.",
            id="reliable_jobs.E004",
        )
    return checks.Error(
        f"The task {task.name!r} names on_dead={task.on_dead!r}, which does not accept the one argument job_id.",
        hint="Give it the parameter job_id.",
        id="reliable_jobs.E005",
    )


def _accepts_job_id(task: registry.Task[..., Any] | None) -> bool:
    if task is None:
        return False
    try:
        task.signature.bind(job_id=1)
    except TypeError:
        return False
    return True
