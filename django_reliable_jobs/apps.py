from __future__ import annotations

import logging
from typing import Any

from django.apps import AppConfig
from django.db import ProgrammingError, connections
from django.db.models.signals import post_migrate
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
        post_migrate.connect(follow_declared_schedules, sender=self)


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
