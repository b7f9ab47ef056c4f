"""What is not as it should be, judged from the database alone.

One place for `jobs check`, the health view and the alerts: what one of them knows, all know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from django.db import DataError, OperationalError

from django_reliable_jobs.engine import alerts
from django_reliable_jobs.engine import findings_of_fleet as fleet
from django_reliable_jobs.engine import findings_of_schedules as of_schedules
from django_reliable_jobs.engine import findings_of_work as work
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.engine.transaction import short_transaction
from django_reliable_jobs.models import Alert

logger = logging.getLogger("django_reliable_jobs")

Kind = Alert.Kind

Probe = Callable[[str], list[Finding]]

# By the kinds that each may find.
PROBES: dict[tuple[Kind, ...], Probe] = {
    (Kind.NO_SCHEDULER, Kind.SCHEDULE_OVERDUE): of_schedules.missing_scheduler,
    (Kind.SCHEDULE_SILENT,): of_schedules.silent,
    (Kind.SCHEDULE_BROKEN,): of_schedules.broken,
    (Kind.SCHEDULE_FAILING,): of_schedules.failing,
    (Kind.QUEUE_AGEING, Kind.QUEUE_UNSERVED): work.ageing_queues,
    (Kind.TASK_SILENT,): work.silent_tasks,
    (Kind.TASK_UNKNOWN,): work.unknown_tasks,
    (Kind.DEAD_LETTERS,): work.dead_letters,
    (Kind.RUNS_LONG,): work.long_runs,
    (Kind.WORKER_LOST,): fleet.silent_workers,
    (Kind.OLD_TRANSACTION,): fleet.old_transactions,
    (Kind.CLOCK_OFF,): fleet.clocks_that_are_off,
}
# These calculate the next runs of every schedule: for a person or a monitor that asks, not every few seconds.
THOROUGH: dict[tuple[Kind, ...], Probe] = {(Kind.SCHEDULE_MOVED,): of_schedules.moved}

STATEMENT_SECONDS = 10.0
QUERY_CANCELED = "57014"


def find(using: str) -> list[Finding]:
    """Return what is not as it should be now. Cheap enough for every few seconds."""
    return _first_of_each(each for probe in PROBES.values() for each in probe(using))


def look(using: str) -> tuple[list[Finding], list[Kind]]:
    """Return what `find` does, and the kinds that were looked for.

    A look that takes too long is left out, and so is one that stumbles over a value: it silences no other alert.
    """
    found: list[Finding] = []
    kinds: list[Kind] = []
    for looked_for, probe in PROBES.items():
        try:
            with short_transaction(using, statement_timeout=STATEMENT_SECONDS):
                found += probe(using)
        except DataError:
            logger.exception("it can't be seen whether there is: %s", ", ".join(looked_for))
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != QUERY_CANCELED:
                raise
            logger.warning("it takes too long to see whether there is: %s", ", ".join(looked_for))
        else:
            kinds += looked_for
    return _first_of_each(found), kinds


def find_all(using: str) -> list[Finding]:
    """Return what is not as it should be now, and what happened lately or was not acknowledged; the worst first."""
    found = find(using)
    found += [each for probe in THOROUGH.values() for each in probe(using)]
    found = _first_of_each([*found, *alerts.find_events(using)])
    return sorted(found, key=lambda each: each.severity != "critical")


def is_healthy(found: list[Finding]) -> bool:
    """Return whether nothing of it is critical."""
    return all(each.severity != "critical" for each in found)


def as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as scripts read it."""
    return {**asdict(finding), "severity": finding.severity}


def _first_of_each(found: Iterable[Finding]) -> list[Finding]:
    unique: dict[tuple[str, str], Finding] = {}
    for each in found:
        unique.setdefault((each.kind, alerts.subject_of(each)), each)
    return list(unique.values())
