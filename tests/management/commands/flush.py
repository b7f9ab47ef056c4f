"""`flush` as it ends each test that commits: Django's costs most of them more than all they do themselves.

That truncates every table and makes content types and permissions anew, with a hundred statements. Here only tables
that hold something, or held it, are truncated; content types and permissions stay, if they are as they were.
"""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.apps import follow_declared_schedules

KEPT = ("django_content_type", "auth_permission")

# `reltuples` is -1 after TRUNCATE, which makes the planner expect some rows; after VACUUM it would expect none.
USED = """
SELECT relname FROM pg_class
WHERE relname = ANY(%s) AND pg_table_is_visible(oid) AND (pg_relation_size(oid) > 0 OR reltuples >= 0)
"""

KEPT_CONTENT = "SELECT " + ", ".join(f"(SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM {t} t)" for t in KEPT)

# What the kept tables held when Django had filled them, by alias.
_filled: dict[str, tuple[str, ...]] = {}


class Command(flush.Command):
    """Leaves what Django's command leaves."""

    def handle(self, **options: Any) -> None:
        using = options["database"]
        connection = connections[using]
        if options["interactive"] or options.get("reset_sequences", True) or options.get("inhibit_post_migrate"):
            super().handle(**options)
        elif kept_content(connection) == _filled.get(using):
            truncate_used(connection)
            follow_declared_schedules(using)
        else:
            super().handle(**options)
            _filled[using] = kept_content(connection)


def kept_content(connection: BaseDatabaseWrapper) -> tuple[str, ...]:
    with connection.cursor() as cursor:
        cursor.execute(KEPT_CONTENT)
        found: tuple[str, ...] = cursor.fetchone()
        return found


def truncate_used(connection: BaseDatabaseWrapper) -> None:
    tables = set(connection.introspection.django_table_names()) - set(KEPT)
    with connection.cursor() as cursor:
        cursor.execute(USED, [sorted(tables)])
        used = ", ".join(connection.ops.quote_name(name) for (name,) in cursor.fetchall())
        if used:
            cursor.execute(f"TRUNCATE {used} CASCADE")  # to tables that are as empty
