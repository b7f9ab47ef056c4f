"""One claim of limited jobs after another, timed: the scan for lines that may start, and the claim from them."""

from __future__ import annotations

import time

from django.db import connection

from django_reliable_jobs.engine import limited, lines

WORKER = 1  # of no row: nobody takes its jobs back
THREADS = 8
END = """
UPDATE django_reliable_jobs_job SET status = 'SUCCEEDED', finished_at = clock_timestamp() WHERE id = ANY(%s)
"""


def claims(count: int) -> dict[str, list[float]]:
    """Claim for eight threads so many times, going round all lines as a worker does; return milliseconds, in order."""
    waits, after = [], ""
    for _ in range(count):
        start = time.perf_counter()
        found = lines.find_lines("default", {"default": after}).lines[:THREADS]
        taken = limited.claim_lines("default", WORKER, found, limit=THREADS, free=THREADS, alone=True) if found else []
        waits.append(1000 * (time.perf_counter() - start))
        after = found[-1].text if len(found) == THREADS else ""
        with connection.cursor() as cursor:
            cursor.execute(END, [[job.id for _, job in taken]])
    return {"milliseconds": sorted(waits)}
