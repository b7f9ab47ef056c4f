"""The tables of django-celery-beat 2.9, and rows in them, without Celery."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.utils import timezone

TABLES = """
CREATE TABLE django_celery_beat_clockedschedule (
    id serial PRIMARY KEY, clocked_time timestamptz NOT NULL);
CREATE TABLE django_celery_beat_crontabschedule (
    id serial PRIMARY KEY, minute varchar(240) NOT NULL, hour varchar(96) NOT NULL, day_of_week varchar(64) NOT NULL,
    day_of_month varchar(124) NOT NULL, month_of_year varchar(64) NOT NULL, timezone varchar(63) NOT NULL);
CREATE TABLE django_celery_beat_intervalschedule (
    id serial PRIMARY KEY, every integer NOT NULL, period varchar(24) NOT NULL);
CREATE TABLE django_celery_beat_solarschedule (
    id serial PRIMARY KEY, event varchar(24) NOT NULL, latitude numeric(9, 6) NOT NULL,
    longitude numeric(9, 6) NOT NULL);
CREATE TABLE django_celery_beat_periodictask (
    id serial PRIMARY KEY, name varchar(200) UNIQUE NOT NULL, task varchar(200) NOT NULL, args text NOT NULL,
    kwargs text NOT NULL, queue varchar(200), exchange varchar(200), routing_key varchar(200), expires timestamptz,
    enabled boolean NOT NULL, last_run_at timestamptz, total_run_count integer NOT NULL,
    date_changed timestamptz NOT NULL, description text NOT NULL,
    crontab_id integer REFERENCES django_celery_beat_crontabschedule,
    interval_id integer REFERENCES django_celery_beat_intervalschedule,
    solar_id integer REFERENCES django_celery_beat_solarschedule, one_off boolean NOT NULL, start_time timestamptz,
    priority integer, headers text NOT NULL, clocked_id integer REFERENCES django_celery_beat_clockedschedule,
    expire_seconds integer);
"""
DEFAULTS = {
    "task": "tests.tasks.unique",
    "args": "[]",
    "kwargs": '{"key": "a"}',
    "enabled": True,
    "total_run_count": 0,
    "description": "",
    "one_off": False,
    "headers": "{}",
}
EVERY_MINUTE = dict.fromkeys(("minute", "hour", "day_of_week", "day_of_month", "month_of_year"), "*")


def create() -> None:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)


def insert(table: str, **columns: Any) -> int:
    """Insert a row; return its id."""
    names = ", ".join(columns)
    places = ", ".join(["%s"] * len(columns))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO django_celery_beat_{table} ({names}) VALUES ({places}) RETURNING id", list(columns.values())
        )
        row_id: int = cursor.fetchone()[0]
        return row_id


def add(name: str, **columns: Any) -> None:
    """Insert a periodic task. `crontab`, `interval`, `clocked`, `solar` are the columns of its schedule."""
    for kind in ("crontab", "interval", "clocked", "solar"):
        if kind in columns:
            given = columns.pop(kind)
            if kind == "crontab":
                given = {**EVERY_MINUTE, "timezone": "UTC", **given}
            columns[f"{kind}_id"] = insert(f"{kind}schedule", **given)
    insert("periodictask", **{**DEFAULTS, "name": name, "date_changed": timezone.now(), **columns})
