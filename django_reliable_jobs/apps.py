from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import ProgrammingError, connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

logger = logging.getLogger("django_reliable_jobs")


class ReliableJobsConfig(AppConfig):
    name = "django_reliable_jobs"
    verbose_name = _("Reliable jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_reliable_jobs import checks, discovery

        checks.register()
        discovery.autodiscover()
        meet_task_backends()
        post_migrate.connect(follow_declared_schedules, sender=self)


def meet_task_backends() -> None:
    """Import the backends of Django's Tasks framework: what checks them, and what finds the tasks of ours, comes along.

    A worker would otherwise learn of ours with the first Task that it imports. One that can't be imported is reported
    by the framework's own check.
    """
    for parameters in getattr(settings, "TASKS", {}).values():
        with suppress(ImportError):
            import_string(parameters.get("BACKEND", ""))
    if "django_reliable_jobs.backend" in sys.modules:
        from django_reliable_jobs.backend import reliable

        reliable.adopt_seen()


def follow_declared_schedules(using: str, **_: Any) -> None:
    """After `migrate`: bring the rows of schedules that code declares in line with it."""
    from django_reliable_jobs.engine import reconcile
    from django_reliable_jobs.engine.transaction import default_database
    from django_reliable_jobs.models import Schedule

    connection = connections[using]
    if using != default_database() or connection.vendor != "postgresql":
        return
    if Schedule._meta.db_table not in connection.introspection.table_names():
        return  # migrated back to before there were schedules
    try:
        reconcile.sync(using)
    except ProgrammingError as error:  # migrated to a state that lacks a column
        logger.warning("the schedules declared in code were not looked at: %s", str(error).splitlines()[0])
