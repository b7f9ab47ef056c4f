"""What it costs that jobs are children of one that waits for them."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from testproject.benchmarks.arena import Failed
from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 10_000
PATIENCE_SECONDS = 120
PLAIN, FAMILY = "plain jobs", "children"
LIVE = "SELECT count(*) FROM django_reliable_jobs_job WHERE finished_at IS NULL"


def measure(bench: Bench) -> list[Comparison]:
    """Let a job enqueue so many others, with and without waiting for them; until all have ended, itself included."""
    ours = replace(bench.ours, driver="ours_steps", left=None)
    runs = by_turns(bench.rounds, {name: partial(_run, bench, ours, name) for name in (PLAIN, FAMILY)}, bench.say)
    return [
        Comparison(
            measure="children",
            unit="jobs/s",
            runs=runs,
            ratios={"plain jobs / children": ratios(runs, PLAIN, FAMILY)},
            goal="at most 1.5",
        )
    ]


def _run(bench: Bench, contestant: Contestant, kind: str) -> Run:
    jobs, database = bench.jobs or JOBS, f"{contestant.driver}_run"
    server = bench.arena.server
    server.create(database, bench.arena.tables(contestant))
    bench.arena.call(contestant, database, "parent", jobs, int(kind == FAMILY))
    with bench.arena.worker(contestant, database) as worker:
        all_ran = worker.wait_until(lambda: worker.count()[0] >= jobs, seconds=PATIENCE_SECONDS, pause=0.01)
        ended = all_ran and worker.wait_until(lambda: not server.value(database, LIVE), seconds=30, pause=0.01)
        if not ended:
            raise Failed(f"{kind}: {worker.count()[0]} of {jobs} ran:\n{worker.log.read_text()[-2000:]}")
        seconds = time.time() - (worker.count()[1] or time.time())
    server.drop(database)
    return Run(value=jobs / seconds, details={"seconds": seconds})
