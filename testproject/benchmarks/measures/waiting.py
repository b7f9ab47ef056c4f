"""What jobs cost that wait: nothing, until their events come, and how fast they go on then."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.rounds import Comparison, Run, by_turns

WAITING = 10_000
EVENTS = 1000
SECONDS = 10.0
SETTLE_SECONDS = 35.0  # more than a lease: from then on a worker looks for lost ones
STILL_RUNNING = "SELECT count(*) FROM django_reliable_jobs_job WHERE status <> 'WAITING'"


def measure(bench: Bench) -> list[Comparison]:
    """Count the statements of an idle worker without and with waiting jobs; then emit events all at once."""
    ours = replace(bench.ours, driver="ours_steps", left=None)
    labels = {"nobody waits": 0, f"{bench.jobs or WAITING} wait": bench.jobs or WAITING}
    runs = by_turns(bench.rounds, {name: partial(_run, bench, ours, jobs) for name, jobs in labels.items()}, bench.say)
    goal = f"no statement more, however many wait; {EVENTS} events wake {EVENTS} jobs in under 5 s"
    return [Comparison(measure="waiting", unit="statements/s", runs=runs, goal=goal)]


def _run(bench: Bench, contestant: Contestant, jobs: int) -> Run:
    database, server = f"{contestant.driver}_run", bench.arena.server
    server.create(database, bench.arena.tables(contestant))
    server.execute("postgres", f"ALTER DATABASE {database} SET log_statement = 'all'")
    seconds, details = bench.seconds or SECONDS, dict[str, float]()
    with bench.arena.worker(contestant, database) as worker:
        if jobs:
            began = time.monotonic()
            bench.arena.call(contestant, database, "wait", jobs)
            worker.wait_until(lambda: not server.value(database, STILL_RUNNING), seconds=120, pause=0.2)
            details["came_to_wait_per_second"] = jobs / (time.monotonic() - began)
        time.sleep(SETTLE_SECONDS)
        before, read_to = worker.usage(), server.log.stat().st_size
        time.sleep(seconds)
        used = worker.usage() - before
        details["worker_percent_of_a_core"] = 100 * used.worker / used.at
        with server.log.open("rb") as log:
            log.seek(read_to)
            lines = [line for line in log if b"LOG:  statement:" in line or b"LOG:  execute " in line]
        if jobs:
            events = min(EVENTS, jobs)
            bench.arena.call(contestant, database, "emit", events)
            began = time.monotonic()
            worker.wait_until(lambda: worker.count()[0] >= events, seconds=60, pause=0.005)
            details["seconds_until_all_had_gone_on"] = time.monotonic() - began
    server.drop(database)
    return Run(value=len(lines) / seconds, details=details)
