"""Limits in force: what the code says, what an operator says instead, and how much of it is left.

A place of a concurrency limit *is* a RUNNING row that carries the key: the statement that ends the attempt, or rescue,
gives it back, and no counter can leak. A rate keeps one moment per key, up to which its starts are paid for (the
generic cell rate algorithm): each start adds one spacing, and none may be paid for more than a burst ahead. So starts
are spread whoever makes them, a crash loses nothing, and a moment in the past says nothing: its row may go.

A limit has one row per name, whatever number of keys it has. A name without a row, which no worker has declared yet, is
the strictest that there is: one at a time, one in an hour. `engine.limited` reads what is left under the lock of a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_reliable_jobs import clock, registry
from django_reliable_jobs.engine.transaction import engine_cursor
from django_reliable_jobs.limits import Concurrency, as_text, default_burst

NOW = "coalesce(%(moment)s::timestamptz, statement_timestamp())"

PRUNE_BATCH = 1000

# {} is the SQL of a key. The name of its limit stands before the colon.
_SAID = "FROM django_reliable_jobs_limit said WHERE said.kind = '{kind}' AND said.name = split_part({key}, ':', 1)"
PLACES = (
    "coalesce((SELECT coalesce(said.override_allowed, said.allowed) "
    + _SAID.format(kind="concurrency", key="{0}")
    + "), 1)"
)
PLACES_TAKEN = (
    "(SELECT count(*) FROM django_reliable_jobs_job busy"
    " WHERE busy.status = 'RUNNING' AND busy.concurrency_key = {0} AND busy.concurrency_key IS NOT NULL)"
)
TURNS_TAKEN = (
    "(SELECT count(*) FROM django_reliable_jobs_job busy"
    " WHERE busy.status = 'RUNNING' AND busy.serial_key = {0} AND busy.serial_key IS NOT NULL)"
)
# Of a queue; NULL: it has no limit.
QUEUE_PLACES = "(SELECT queue.concurrency FROM django_reliable_jobs_queue queue WHERE queue.name = {0})"
QUEUE_PLACES_TAKEN = (
    "(SELECT count(*) FROM django_reliable_jobs_job busy WHERE busy.status = 'RUNNING' AND busy.queue_name = {0})"
)
# A table of one row: the seconds between two starts (NULL: none may start), the burst, and how far ahead starts are
# paid for. More than a burst ahead was paid under a slower limit, or before the clock was set back: one may start.
PACE = f"""(
    SELECT rate.spacing, rate.burst,
           CASE WHEN extract(epoch FROM pace.paid_until - {NOW})::float8 > rate.burst * rate.spacing + 0.001
                THEN (rate.burst - 1) * rate.spacing
                ELSE greatest(extract(epoch FROM pace.paid_until - {NOW})::float8, 0) END AS ahead
      FROM (SELECT coalesce(said.override_period, said.period, 3600)
                   / nullif(coalesce(said.override_allowed, said.allowed, 1), 0)::float8 AS spacing,
                   coalesce(said.override_burst, said.burst, 1) AS burst
              FROM (SELECT) nothing
              LEFT JOIN (SELECT said.* {_SAID.format(kind="rate", key="{0}")}) said ON true) rate
      LEFT JOIN django_reliable_jobs_pace pace ON pace.key = {{0}})"""
# Both of a row `pace` of such a table. The small number makes up for what is lost in rounding.
FREE_STARTS = "coalesce(floor(pace.burst - pace.ahead / pace.spacing + 1e-6), 0)"
SECONDS_TO_START = "greatest(pace.ahead - (pace.burst - 1) * pace.spacing, 0)"

_NEW = """
INSERT INTO django_reliable_jobs_limit AS said (kind, name, allowed, period, burst)
SELECT given.* FROM unnest(%(kinds)s::text[], %(names)s::text[], %(allowed)s::int[], %(periods)s::int[],
                           %(bursts)s::int[]) AS given(kind, name, allowed, period, burst)
 WHERE NOT EXISTS (SELECT 1 FROM django_reliable_jobs_limit said WHERE said.kind = given.kind AND said.name = given.name
                      AND (said.allowed, said.period, said.burst) IS NOT DISTINCT FROM
                          (given.allowed, given.period, given.burst))
 ORDER BY given.kind, given.name
"""
DECLARE = f"""{_NEW} ON CONFLICT (kind, name) DO UPDATE SET
   allowed = excluded.allowed, period = excluded.period, burst = excluded.burst, declared_at = clock_timestamp()
"""
DECLARE_MISSING = f"{_NEW} ON CONFLICT (kind, name) DO NOTHING"

OVERRIDE = """
UPDATE django_reliable_jobs_limit
   SET override_allowed = %(allowed)s, override_period = %(period)s, override_burst = %(burst)s
 WHERE kind = %(kind)s AND name = %(name)s
"""

# Each arm is read in an index of what is not over. A key is the name, or the name, a colon and what it is per.
_HAS_KEY = "(job.concurrency_key IS NOT NULL OR job.rate_key IS NOT NULL OR job.serial_key IS NOT NULL)"
_USES = """EXISTS (SELECT 1 FROM django_reliable_jobs_job job
                WHERE job.status {0} AND split_part(CASE said.kind WHEN 'rate' THEN job.rate_key
                                                                   ELSE job.concurrency_key END, ':', 1) = said.name)"""
IS_LEFT = f"""said.kind = %(kind)s AND said.name = %(name)s AND said.override_allowed IS NULL
   AND NOT {_USES.format(f"= 'READY' AND {_HAS_KEY}")} AND NOT {_USES.format("= 'RUNNING'")}
   AND NOT {_USES.format("IN ('SCHEDULED', 'WAITING')")}"""
FIND_LEFT = f"SELECT 1 FROM django_reliable_jobs_limit said WHERE {IS_LEFT}"
FORGET = f"DELETE FROM django_reliable_jobs_limit said WHERE {IS_LEFT}"

LIST = f"""
WITH running AS (
    SELECT split_part(concurrency_key, ':', 1) AS name, count(*) AS jobs FROM django_reliable_jobs_job
     WHERE status = 'RUNNING' AND concurrency_key IS NOT NULL GROUP BY 1
), ready AS MATERIALIZED (
    SELECT concurrency_key, rate_key FROM django_reliable_jobs_job job
     WHERE status = 'READY' AND (concurrency_key IS NOT NULL OR rate_key IS NOT NULL OR serial_key IS NOT NULL)
), ready_key AS MATERIALIZED (
    SELECT rate_key AS key, count(*) AS jobs FROM ready WHERE rate_key IS NOT NULL GROUP BY 1
), waiting AS (
    SELECT 'concurrency' AS kind, split_part(concurrency_key, ':', 1) AS name, count(*) AS jobs, NULL AS seconds
      FROM ready WHERE concurrency_key IS NOT NULL GROUP BY 2
     UNION ALL
    SELECT 'rate', split_part(ready_key.key, ':', 1), sum(ready_key.jobs)::bigint,
           min(CASE WHEN pace.spacing IS NOT NULL THEN {SECONDS_TO_START} END)
      FROM ready_key CROSS JOIN LATERAL {PACE.format("ready_key.key")} pace GROUP BY 2
)
SELECT kind, name, coalesce(said.allowed, 1), coalesce(said.period, CASE kind WHEN 'rate' THEN 3600 END),
       coalesce(said.burst, CASE kind WHEN 'rate' THEN 1 END),
       said.override_allowed, said.override_period, said.override_burst, said.id IS NOT NULL,
       CASE kind WHEN 'concurrency' THEN coalesce(running.jobs, 0) END, coalesce(waiting.jobs, 0), waiting.seconds
  FROM django_reliable_jobs_limit said
  FULL JOIN waiting USING (kind, name)
  LEFT JOIN running USING (name)
 ORDER BY name, kind
"""

HOLDERS = """
SELECT id, task, concurrency_key, started_at FROM django_reliable_jobs_job
 WHERE status = 'RUNNING' AND concurrency_key IS NOT NULL AND split_part(concurrency_key, ':', 1) = %(name)s
 ORDER BY started_at, id LIMIT %(most)s
"""

# The margin keeps rows that are in use; what is gone is made again by the next start.
PRUNE_PACES = f"""
DELETE FROM django_reliable_jobs_pace WHERE key IN (
    SELECT key FROM django_reliable_jobs_pace WHERE paid_until < {NOW} - interval '10 minutes'
     LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True)
class LimitStatus:
    """One limit now. `running` is None for a rate: it counts starts."""

    kind: str
    name: str
    value: str  # the code's
    override: str | None  # the operator's, in force while there is one
    is_declared: bool  # False: no worker has declared it, and jobs wait for it; the strictest value is in force
    running: int | None
    waiting: int  # ready jobs that count for it, whatever else they wait for
    seconds_to_start: float | None  # until a rate lets the first of those start; None: never, as the limit stands


@dataclass(frozen=True)
class Holder:
    """A running job that has a place of a limit, under this key of it."""

    id: int
    task: str
    key: str
    started_at: datetime


def declare(using: str, *, missing_only: bool = False) -> None:
    """Write what the declared tasks say of limits: the last process to start has the last word.

    What an operator says instead stays.
    """
    declared = sorted(registry.declared_limits().items())
    if not declared:
        return
    values = [(each.allowed, *_period_and_burst(each)) for _, each in declared]
    _execute(
        using,
        DECLARE_MISSING if missing_only else DECLARE,
        kinds=[kind for (kind, _), _ in declared],
        names=[name for (_, name), _ in declared],
        allowed=[allowed for allowed, _, _ in values],
        periods=[period for _, period, _ in values],
        bursts=[burst for _, _, burst in values],
    )


def override(
    using: str, kind: str, name: str, allowed: int, period: int | None = None, burst: int | None = None
) -> bool:
    """Put a value in force in place of the code's, at once for new claims; 0: nothing starts. False: no such limit.

    A limit that was lowered lets what runs end.
    """
    if period is not None and burst is None:
        burst = default_burst(allowed, period)
    return _execute(using, OVERRIDE, kind=kind, name=name, allowed=allowed, period=period, burst=burst) == 1


def reset(using: str, kind: str, name: str) -> bool:
    """Let the code's value be in force again. False: no such limit."""
    return _execute(using, OVERRIDE, kind=kind, name=name, allowed=None, period=None, burst=None) == 1


def is_left(using: str, kind: str, name: str) -> bool:
    """Return whether a row is no more than a leftover: no task of this code declares it, no operator says anything, and
    no job that has not ended counts for it.
    """
    return (kind, name) not in registry.declared_limits() and _execute(using, FIND_LEFT, kind=kind, name=name) == 1


def forget(using: str, kind: str, name: str) -> bool:
    """Delete the row of a limit that is left over. False: it is not, or there is none.

    A worker of a release that still declares it makes it again when it starts; until then the name is the strictest.
    """
    return (kind, name) not in registry.declared_limits() and _execute(using, FORGET, kind=kind, name=name) == 1


def statuses(using: str) -> list[LimitStatus]:
    """Return every limit, by name; also those that no worker has declared, if jobs wait for them."""
    with engine_cursor(using) as cursor:
        cursor.execute(LIST, {"moment": clock.moment()})
        return [
            LimitStatus(kind, name, as_text(*said), None if instead[0] is None else as_text(*instead), *used)
            for kind, name, *values in cursor.fetchall()
            for said, instead, used in [(values[:3], values[3:6], values[6:])]
        ]


def holders(using: str, name: str, *, most: int) -> list[Holder]:
    """Return running jobs that count for a limit of jobs at once, those first that started first."""
    with engine_cursor(using) as cursor:
        cursor.execute(HOLDERS, {"name": name, "most": most})
        return [Holder(*row) for row in cursor.fetchall()]


def prune_paces(using: str) -> int:
    """Delete moments that say nothing any more, at most one batch; return how many."""
    return _execute(using, PRUNE_PACES, batch=PRUNE_BATCH)


def _period_and_burst(limit: Any) -> tuple[int | None, int | None]:
    return (None, None) if isinstance(limit, Concurrency) else (limit.period, limit.burst)


def _execute(using: str, statement: str, **parameters: Any) -> int:
    with engine_cursor(using) as cursor:
        cursor.execute(statement, {"moment": clock.moment(), **parameters})
        return int(cursor.rowcount)
