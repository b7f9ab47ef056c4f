"""Lines of limited jobs: which of them may start a job now, and when the others may.

Jobs of a queue with the same keys stand in one line, in the order of priority, due time and id.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from django_reliable_jobs import clock
from django_reliable_jobs.engine.claim import IS_LIMITED, IS_OPEN, NOW
from django_reliable_jobs.engine.limits import (
    PACE,
    PLACES,
    PLACES_TAKEN,
    QUEUE_PLACES,
    QUEUE_PLACES_TAKEN,
    SECONDS_TO_START,
    TURNS_TAKEN,
)
from django_reliable_jobs.engine.transaction import engine_cursor

LINES_WANTED = 50
LINES_SEEN = 500


class Line(NamedTuple):
    """One line of limited jobs, with its first job as `find_lines` saw it."""

    queue_name: str
    text: str
    concurrency_key: str | None
    rate_key: str | None
    serial_key: str | None
    is_capped: bool  # its queue has a limit of its own
    priority: int
    job_id: int
    waited: float  # seconds since it was due
    is_suspect: bool  # it lost its worker before


class Finding(NamedTuple):
    """What `find_lines` saw."""

    lines: list[Line]  # may start a job now; by queue, in the order of the scan
    soonest: float | None  # seconds until a rate lets one of the others start; None: nobody knows
    last: dict[str, str]  # by queue, the last line seen, where there may be more behind it
    is_hopeless: bool  # none may ever start, as the limits stand


# As in models.job, and so in the index.
LINE = (
    "(coalesce(job.concurrency_key, '') || chr(10) || coalesce(job.rate_key, '') || chr(10)"
    " || coalesce(job.serial_key, '')) COLLATE \"C\""
)

# The seconds until the first job of a line may start: 0 now, infinity when something ends, NaN not as the limit stands.
_WAIT = f"""greatest(
    CASE WHEN arm.is_full THEN float8 'Infinity' ELSE 0 END,
    CASE WHEN job.concurrency_key IS NULL THEN 0
         WHEN {PLACES.format("job.concurrency_key")} = 0 THEN float8 'NaN'
         WHEN {PLACES_TAKEN.format("job.concurrency_key")} >= {PLACES.format("job.concurrency_key")} THEN 'Infinity'
         ELSE 0 END,
    CASE WHEN job.serial_key IS NULL OR {TURNS_TAKEN.format("job.serial_key")} = 0 THEN 0 ELSE float8 'Infinity' END,
    CASE WHEN job.rate_key IS NULL OR NOT %(paced)s THEN 0
         ELSE (SELECT CASE WHEN pace.spacing IS NULL THEN float8 'NaN' ELSE {SECONDS_TO_START} END
                 FROM {PACE.format("job.rate_key")} pace) END)"""

# OFFSET: so that what it takes to know the wait is done once.
_NEXT_LINE = f"""
    SELECT job.*, {_WAIT} AS wait FROM (
        SELECT {LINE} AS line, job.concurrency_key, job.rate_key, job.serial_key, job.priority, job.id, job.run_after,
               job.losses
          FROM django_reliable_jobs_job job
         WHERE {IS_LIMITED} AND job.queue_name = arm.queue_name AND {LINE} > {{}}
         ORDER BY {LINE}, job.priority DESC, job.run_after, job.id LIMIT 1) job OFFSET 0"""

# A loose index scan from the cursor of each queue: one index descent a line, however many jobs it has. Comes back: the
# lines that may start a job, and the last one seen of each queue.
FIND = f"""
SELECT queue_name, line, concurrency_key, rate_key, serial_key, is_capped, priority, id,
       extract(epoch FROM {NOW} - run_after)::float8, losses > 0, wait, soonest, is_last, is_cut
  FROM (SELECT arm.queue_name, arm.position, arm.is_capped, line.*,
               min(nullif(line.wait, 0)) OVER (PARTITION BY arm.position) AS soonest,
               max(line.number) OVER (PARTITION BY arm.position) = line.number AS is_last,
               line.found >= %(wanted)s OR line.number >= %(most)s AS is_cut
          FROM (SELECT given.*, queue.places IS NOT NULL AS is_capped,
                       CASE WHEN queue.places IS NULL THEN false
                            ELSE queue.places <= {QUEUE_PLACES_TAKEN.format("given.queue_name")} END AS is_full
                  FROM unnest(%(queues)s::text[], %(cursors)s::text[])
                       WITH ORDINALITY AS given(queue_name, cursor, position)
                 CROSS JOIN LATERAL (SELECT {QUEUE_PLACES.format("given.queue_name")} AS places) queue
                OFFSET 0) arm
         CROSS JOIN LATERAL (
               WITH RECURSIVE line AS (
                   SELECT first.*, 1 AS number, (first.wait = 0)::int AS found
                     FROM ({_NEXT_LINE.format("arm.cursor")}) first
                    UNION ALL
                   SELECT later.*, line.number + 1, line.found + (later.wait = 0)::int
                     FROM line CROSS JOIN LATERAL ({_NEXT_LINE.format("line.line")}) later
                    WHERE line.found < %(wanted)s AND line.number < %(most)s AND NOT arm.is_full
               ) SELECT * FROM line) line
         WHERE {IS_OPEN.format("arm")}) seen
 WHERE wait = 0 OR is_last
 ORDER BY position, number
"""


def find_lines(using: str, cursors: Mapping[str, str], *, is_paced: bool = True) -> Finding:
    """Look for lines of these queues behind their cursors ("": from the first) that may start a job now.

    Not `is_paced`: as if no rate had been used yet, for tests.
    """
    parameters = {
        "moment": clock.moment(),
        "queues": list(cursors),
        "cursors": list(cursors.values()),
        "wanted": LINES_WANTED,
        "most": LINES_SEEN,
        "paced": is_paced,
    }
    with engine_cursor(using) as cursor:
        cursor.execute(FIND, parameters)
        rows = cursor.fetchall()
    lines = [Line._make(row[:-4]) for row in rows if row[-4] == 0]
    last = {row[0]: row[1] for row in rows if row[-2] and row[-1]}
    waits = [row[-3] for row in rows if row[-2] and row[-3] is not None]
    soonest = min((wait for wait in waits if math.isfinite(wait)), default=None)
    return Finding(lines, soonest, last, not lines and all(map(math.isnan, waits)))
