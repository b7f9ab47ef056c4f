"""The rows of django-celery-beat, whether its app is still installed or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connections

PREFIX = "django_celery_beat_"
KINDS = {"interval": "intervalschedule", "crontab": "crontabschedule", "clocked": "clockedschedule",
         "solar": "solarschedule"}  # fmt: skip

Row = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One periodic task: its row, and the row of the schedule that it points to."""

    task: Row
    kind: str
    schedule: Row


def has_tables(using: str) -> bool:
    """Return whether the database holds periodic tasks."""
    return f"{PREFIX}periodictask" in connections[using].introspection.table_names()


def read(using: str) -> list[Entry]:
    """Return the periodic tasks, by name. Columns that an old version lacks are missing in the rows."""
    schedules = {kind: {row["id"]: row for row in _rows(using, table)} for kind, table in KINDS.items()}
    return [_entry(row, schedules) for row in sorted(_rows(using, "periodictask"), key=lambda row: row["name"])]


def _entry(row: Row, schedules: dict[str, dict[int, Row]]) -> Entry:
    for kind, found in schedules.items():
        if (schedule := found.get(row.get(f"{kind}_id") or 0)) is not None:
            return Entry(row, kind, schedule)
    return Entry(row, "", {})


def _rows(using: str, table: str) -> list[Row]:
    connection = connections[using]
    if PREFIX + table not in connection.introspection.table_names():
        return []
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(PREFIX + table)}")  # noqa: S608 - a constant
        columns = [column[0] for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
