"""Rows follow the declarations in code; what an operator changed or made stays.

Each code-managed row keeps the code's values of the last time. A field that still has that value follows the code; one
that differs was changed by an operator, and stays until it is reset. A declaration that is gone pauses its row, one
that is back resumes it, unless an operator had paused it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from django.db import transaction
from django.db.models import Q

from django_reliable_jobs import declared_schedules
from django_reliable_jobs.declared_schedules import DeclaredSchedule
from django_reliable_jobs.engine import schedules
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.exceptions import InvalidSchedule
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.schedule_options import as_json, from_json

logger = logging.getLogger("django_reliable_jobs")

UNDECLARED = "its declaration is gone from the code"

Action = Literal["created", "changed", "unchanged", "paused", "resumed", "taken", "invalid"]


@dataclass(frozen=True)
class Change:
    """What became of one schedule: `details` are the fields that followed the code, or why it was left alone."""

    name: str
    action: Action
    details: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()  # fields that an operator changed


def overridden_fields(schedule: Schedule) -> tuple[str, ...]:
    """Return the fields in which a row differs from the code, as of the last sync."""
    if schedule.declared is None:
        return ()
    current = as_json(vars(schedule))
    return tuple(name for name, value in schedule.declared.items() if current.get(name) != value)


def add_missing(using: str) -> list[Change]:
    """Make rows for declarations that have none, and leave all rows as they are; return what was done, by name."""
    declared = {each.name: each for each in declared_schedules.all_schedules()}
    made = Schedule.objects.using(using).filter(name__in=declared).values_list("name", flat=True)
    changes = [_follow(using, each, None) for name, each in declared.items() if name not in set(made)]
    _report(changes)
    return sorted(changes, key=lambda each: each.name)


def is_left(schedule: Schedule) -> bool:
    """Return whether a row is left over from a declaration that this code has not, nor had the scheduler that led."""
    is_declared = any(each.name == schedule.name for each in declared_schedules.all_schedules())
    return schedule.pause_reason == UNDECLARED and not is_declared


def sync(using: str, *, dry_run: bool = False, patience: float | None = None) -> list[Change]:
    """Bring the rows in line with the declarations; return what was done, or would be, by name.

    With `patience`, no lock is waited for longer than so many seconds: DatabaseError says so.
    """
    declared = declared_schedules.all_schedules()
    names = {each.name for each in declared}
    is_concerned = Q(name__in=names) | Q(managed_by=Schedule.ManagedBy.CODE)
    with short_transaction(using, lock_timeout=patience):
        # In the order of ids, as everybody locks schedules; processes that start at once follow one after another.
        rows = Schedule.objects.using(using).select_for_update(no_key=True).filter(is_concerned).order_by("pk")
        by_name = {row.name: row for row in rows}
        changes = [_follow(using, each, by_name.get(each.name)) for each in declared]
        for row in by_name.values():
            if row.name not in names and row.paused_at is None:
                schedules.pause(using, [row.pk], reason=UNDECLARED)
                changes.append(Change(row.name, "paused", (UNDECLARED,)))
        if dry_run:
            transaction.set_rollback(True, using=using)
    if not dry_run:
        _report(changes)
    return sorted(changes, key=lambda each: each.name)


def _follow(using: str, declared: DeclaredSchedule, row: Schedule | None) -> Change:
    try:
        with transaction.atomic(using=using):
            if row is None:
                schedules.create(
                    using, name=declared.name, task=declared.task.name, options=declared.options, is_declared=True
                )
                return Change(declared.name, "created")
            return _merge(using, row, declared)
    except InvalidSchedule as error:
        made = Schedule.objects.using(using).filter(name=declared.name).first() if row is None else None
        if made is not None:  # by a process that started at the same moment
            return _follow(using, declared, made)
        return Change(declared.name, "invalid", (str(error),))


def _merge(using: str, row: Schedule, declared: DeclaredSchedule) -> Change:
    if row.managed_by != Schedule.ManagedBy.CODE or row.declared is None:
        return Change(row.name, "taken", ("an operator made a schedule of this name; the code's is left out",))
    new = as_json({"task": declared.task.name, **declared.options.as_columns()})
    old, current = row.declared, as_json(vars(row))
    follows = {name: value for name, value in new.items() if current[name] == old.get(name, current[name])}
    changed = {name: value for name, value in follows.items() if current[name] != value}
    if changed:
        schedules.edit(using, row.pk, **from_json(changed))
    if new != old:
        Schedule.objects.using(using).filter(pk=row.pk).update(declared=new)
    overridden = tuple(name for name, value in new.items() if {**current, **changed}[name] != value)
    is_back = row.paused_at is not None and row.pause_reason == UNDECLARED
    if is_back:
        schedules.resume(using, [row.pk])
    action: Action = "resumed" if is_back else "changed" if changed else "unchanged"
    return Change(row.name, action, tuple(changed), overridden)


def _report(changes: list[Change]) -> None:
    for each in changes:
        details = f" ({', '.join(each.details)})" if each.details else ""
        if each.action in ("taken", "invalid"):
            logger.error("schedule %s: left alone%s", each.name, details)
        elif each.action != "unchanged":
            logger.info("schedule %s: %s%s", each.name, each.action, details)
        if each.overridden:
            logger.info("schedule %s: overridden by an operator: %s", each.name, ", ".join(each.overridden))
