"""The INSERT of jobs of schedules: of any tasks, each under an id that was taken before, in one statement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django_reliable_jobs import clock
from django_reliable_jobs.engine.insert import COLUMNS, NOW, OF_CALL, UNLESS_DUPLICATE
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.engine.wakeup import notify_idle

# Of the parameters of an ordinary INSERT, those that are not text.
_TYPES = {
    "id": "bigint",
    "schedule_id": "bigint",
    "slot": "timestamptz",
    "start_before": "timestamptz",
    "priority": "smallint",
    "max_attempts": "smallint",
    "unique_until_start": "boolean",
    "run_after": "timestamptz",
    "delay": "interval",
    "expires": "interval",
    "unique_hash": "bytea",
    "batch_id": "bigint",
    "parent_id": "bigint",
}
_PARAMETER = re.compile(r"%\((?!moment\))(\w+)\)s")  # the moment is one for all
_GIVEN = tuple(dict.fromkeys([*_PARAMETER.findall(OF_CALL), "id", "schedule_id", "slot", "start_before", "serial_key"]))

_OF_GIVEN = _PARAMETER.sub(r"given.\1", OF_CALL)
_COLUMNS = ", ".join(f"%({name})s::{_TYPES.get(name, 'text')}[]" for name in _GIVEN)

# The order is that of the unique keys, so that two ticks meet the same keys in the same order.
INSERT = f"""
INSERT INTO django_reliable_jobs_job AS job (id, {COLUMNS}, schedule_id, slot, start_before, serial_key)
SELECT given.id, {_OF_GIVEN}, given.schedule_id, given.slot, given.start_before, given.serial_key
  FROM unnest({_COLUMNS}) AS given({", ".join(_GIVEN)})
 ORDER BY given.unique_hash, given.id
{UNLESS_DUPLICATE}
RETURNING job.id, CASE WHEN job.status = 'READY' OR job.run_after < {NOW} + interval '1 minute'
                       THEN {notify_idle("job.queue_name")} END
"""


def insert(using: str, jobs: Sequence[Mapping[str, Any]]) -> set[int]:
    """Insert jobs, each given as a dict of what `enqueue.check_scheduled` returns and its id, schedule and slot.

    Returns the ids of those inserted; of the others a live job holds the unique key.
    """
    if not jobs:
        return set()
    columns = {name: [job[name] for job in jobs] for name in _GIVEN}
    with engine_cursor(using) as cursor:
        cursor.execute(INSERT, {"moment": clock.moment(), **columns})
        return {job_id for job_id, _ in cursor.fetchall()}
