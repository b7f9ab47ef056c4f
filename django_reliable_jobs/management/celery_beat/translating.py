"""From a periodic task of django-celery-beat to a schedule of ours: no database."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django_reliable_jobs import registry
from django_reliable_jobs.exceptions import InvalidRecurrence, InvalidSchedule, UnknownTask
from django_reliable_jobs.management.celery_beat.reading import Entry, Row
from django_reliable_jobs.recurrence import Cron, Every, Once, Recurrence
from django_reliable_jobs.schedule_options import ScheduleOptions

OF_CELERY = "celery."  # its own tasks, such as celery.backend_cleanup
LONG_NAME = re.compile(r"[A-Za-z]{4,}")
# Celery runs when both day fields match, cron when either does. These both say "the nth such weekday of the month".
NTH_WEEK = {"1-7": 1, "8-14": 2, "15-21": 3, "22-28": 4}


class NotImportable(Exception):
    """A periodic task has no equal here; the text says why and what to do."""


@dataclass(frozen=True)
class Translation:
    """A schedule to be made."""

    name: str
    task: str
    options: ScheduleOptions
    is_paused: bool
    notes: list[str] = field(default_factory=list)  # what is left out of this one


def translate(entry: Entry, *, now: datetime, zone: str | None, overlap: str) -> Translation:
    """Return the schedule that does what a periodic task did. Raises NotImportable.

    `zone`: of all crontabs, in place of their own, for a project that had switched those off.
    """
    row, start = entry.task, entry.task.get("start_time")
    _refuse_what_is_over(row, now)
    task = _task_of(row)
    recurrence = _recurrence(entry, now, start, zone)
    seconds = row.get("expire_seconds")
    try:
        options = ScheduleOptions(
            recurrence=_once(recurrence, row, now, start) if row.get("one_off") else recurrence,
            kwargs=_arguments(row, task.signature),
            overlap=overlap,
            start_deadline=None if not seconds else timedelta(seconds=seconds),
            starts_at=start if start is not None and start > now and not row.get("one_off") else None,
            ends_at=row.get("expires"),
            queue_name=row.get("queue") or "",
        )
    except InvalidSchedule as error:
        raise NotImportable(str(error)) from None
    return Translation(row["name"], task.name, options, not row["enabled"], _left_out(row))


def _refuse_what_is_over(row: Row, now: datetime) -> None:
    ends_at = row.get("expires")
    if ends_at is not None and ends_at <= now:
        raise NotImportable(f"it expired at {ends_at.isoformat()}")
    if row.get("one_off") and row.get("total_run_count"):  # beat disables it when it looks next
        raise NotImportable("it was to run once, and has run")


def _task_of(row: Row) -> registry.Task[..., Any]:
    if row["task"].startswith(OF_CELERY):
        raise NotImportable("it is a task of Celery itself, which nothing here needs")
    try:
        return registry.get(row["task"])
    except UnknownTask as error:
        raise NotImportable(f"{error} @task(aliases=[{row['task']!r}]) gives a task its old name.") from None


def _left_out(row: Row) -> list[str]:
    known_to_brokers = [each for each in ("exchange", "routing_key", "priority") if row.get(each) not in (None, "")]
    notes = [f"its {each} is left out: only a broker knows it" for each in known_to_brokers]
    if row.get("headers") not in (None, "", "{}"):
        notes.append("its headers are left out: a job has none")
    return notes


def _recurrence(entry: Entry, now: datetime, start: datetime | None, zone: str | None) -> Recurrence:
    try:
        match entry.kind:
            case "crontab":
                return _cron(entry.schedule, zone)
            case "interval":
                if entry.schedule["period"] == "microseconds":
                    raise NotImportable("an interval of microseconds: here the shortest is a second")
                # In the phase in which it ran.
                anchor = start or entry.task.get("last_run_at") or now
                return Every(
                    **{entry.schedule["period"]: entry.schedule["every"]}, anchor=anchor.replace(microsecond=0)
                )
            case "clocked":
                if entry.schedule["clocked_time"] <= now:
                    raise NotImportable(f"its moment, {entry.schedule['clocked_time'].isoformat()}, has passed")
                return Once(at=entry.schedule["clocked_time"])
            case "solar":
                place = f"{entry.schedule['latitude']}, {entry.schedule['longitude']}"
                raise NotImportable(
                    f"it follows the sun ({entry.schedule['event']} at {place}), which nothing here does: run a job"
                    " every few minutes that asks a library such as astral, or a Cron at an hour that is always right"
                )
    except InvalidRecurrence as error:
        raise NotImportable(str(error)) from None
    raise NotImportable("it has no schedule")


def _cron(row: Row, zone: str | None) -> Cron:
    minute, hour, day, month, weekday = (
        LONG_NAME.sub(lambda name: name.group()[:3], str(row[name]).replace(" ", "")) or "*"
        for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    )
    day = "*" if day in ("*/1", "1-31") else day
    weekday = "*" if weekday in ("*/1", "0-6", "1-7", "0-7") else weekday
    if day != "*" and weekday != "*":
        if day not in NTH_WEEK or not re.fullmatch(r"[0-7]|[A-Za-z]{3}", weekday):
            raise NotImportable(
                f"it runs when the day of the month is {day} and the weekday is {weekday}; cron runs when either is so."
                " Schedule one of the two, and let the task look at the other"
            )
        day, weekday = "*", f"{weekday}#{NTH_WEEK[day]}"
    return Cron(f"{minute} {hour} {day} {month} {weekday}", timezone=zone or str(row.get("timezone") or "UTC"))


def _once(recurrence: Recurrence, row: Row, now: datetime, start: datetime | None) -> Recurrence:
    if isinstance(recurrence, Once):
        return recurrence
    if isinstance(recurrence, Every) and start is not None and start > now:
        return Once(at=start)
    fire = recurrence.next_after(max(start or now, now))
    if fire is None:
        raise NotImportable("it would never run")
    return Once(at=fire)


def _arguments(row: Row, signature: inspect.Signature) -> dict[str, Any]:
    """Return all arguments by name: a schedule of ours has no others."""
    try:
        args, kwargs = json.loads(row.get("args") or "[]"), json.loads(row.get("kwargs") or "{}")
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise NotImportable(f"its arguments, {row.get('args')} and {row.get('kwargs')}, do not fit: {error}") from None
    result = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            result |= result.pop(name, {})
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL and result.pop(name, ()):
            raise NotImportable(f"its arguments go into *{name}; a schedule gives arguments by name only")
    return result
