"""What limited jobs cost the others: a drain of jobs without limits beside 100,000 that wait for theirs."""

from __future__ import annotations

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.measures.claims import BUSY
from testproject.benchmarks.measures.crowded import compare
from testproject.benchmarks.rounds import Comparison

ROWS = 100_000
GOAL = "at least 0.95"

_JOB = "INSERT INTO django_reliable_jobs_job (task, kwargs, status, created_at, run_after, {column}) "
_WAITS = """SELECT 'benchmark.noop', '{"number": 1, "note": ""}', 'READY', now(), now(), {key}
              FROM generate_series(1, {rows}) AS given(number)"""

# Each of 1,000 customers has a hundred jobs, and as many running as may.
OF_A_THOUSAND_KEYS = (
    "INSERT INTO django_reliable_jobs_limit (kind, name, allowed) VALUES ('concurrency', 'crm', 8)",
    BUSY.replace("{busy}", "1000"),
    (_JOB + _WAITS).replace("{column}", "concurrency_key").replace("{key}", "'crm:customer_id=' || number % 1000"),
)
# One rate, which lets one start in an hour.
OF_A_RATE = (
    "INSERT INTO django_reliable_jobs_limit (kind, name, allowed, period, burst) VALUES ('rate', 'api', 1, 3600, 1)",
    "INSERT INTO django_reliable_jobs_pace (key, paid_until) VALUES ('api', now() + interval '1 hour')",
    (_JOB + _WAITS).replace("{column}", "rate_key").replace("{key}", "'api'"),
)


def measure(bench: Bench) -> list[Comparison]:
    """Compare with the empty table."""
    rows = bench.rows or ROWS
    return [
        compare(bench, bench.ours, "jobs at their limit", OF_A_THOUSAND_KEYS, rows=rows, goal=GOAL),
        compare(bench, bench.ours, "jobs that wait for a rate", OF_A_RATE, rows=rows, goal=GOAL),
    ]
