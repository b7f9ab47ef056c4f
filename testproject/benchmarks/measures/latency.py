"""How long a job waits for its start when the worker has nothing else to do."""

from __future__ import annotations

import time
from functools import partial

from testproject.benchmarks.arena import Failed
from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.peers import marks
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 300
GAP = 0.05
SETTLE_SECONDS = 4.0


def measure(bench: Bench) -> list[Comparison]:
    """Enqueue one job after another, by turns; the median of start - return of the enqueue call, in milliseconds."""
    contestants = [bench.ours, *(peer for peer in bench.peers if peer.driver != "raw_sql")]
    runs = by_turns(bench.rounds, {each.name: partial(_run, bench, each) for each in contestants}, bench.say)
    return [
        Comparison(
            measure="pickup latency, p50",
            unit="ms",
            runs=runs,
            ratios={f"ours / {each.name}": ratios(runs, "ours", each.name) for each in contestants[1:]},
            goal="p50 under 3 ms, p99 under 8 ms, not worse than the best PostgreSQL peer",
        )
    ]


def _run(bench: Bench, contestant: Contestant) -> Run:
    database, jobs = f"{contestant.driver}_run", bench.jobs or JOBS
    if not contestant.needs_redis:
        bench.arena.server.create(database, bench.arena.tables(contestant))
    with bench.arena.worker(contestant, database) as worker:
        time.sleep(SETTLE_SECONDS)
        before = worker.usage()
        bench.arena.call(contestant, database, "latency", jobs, GAP, marks_in=worker.marks)
        all_started = worker.wait_until(lambda: len(marks.stamps(worker.marks, "started")) >= jobs, seconds=20)
        used = worker.usage() - before
        enqueued, started = (marks.stamps(worker.marks, name) for name in ("enqueued", "started"))
    if not all_started:
        raise Failed(f"{contestant.name} started {len(started)} of {jobs} jobs")
    waits = sorted(1000 * (started[number] - enqueued[number]) for number in enqueued)
    return Run(value=quantile(waits, 0.5), details=_details(waits, used.outside / max(used.at, 0.001)))


def _details(waits: list[float], outside: float) -> dict[str, float]:
    quantiles = {f"p{part:.0%}"[:-1]: quantile(waits, part) for part in (0.5, 0.9, 0.95, 0.99)}
    return {**quantiles, "most": waits[-1], "least": waits[0], "outside_cores": outside}


def quantile(ordered: list[float], part: float) -> float:
    """Return the value below which so large a part of the values lies."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
