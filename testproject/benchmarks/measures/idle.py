"""What a worker costs that has nothing to do, and how fast it still is when work comes."""

from __future__ import annotations

import time
from functools import partial

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.peers import marks
from testproject.benchmarks.rounds import Comparison, Run, by_turns
from testproject.benchmarks.usage import resident_of

SECONDS = 20.0
SETTLE_SECONDS = 5.0


def measure(bench: Bench) -> list[Comparison]:
    """Count statements in the server's log while the worker idles; then enqueue one job."""
    contestants = [bench.ours, *(each for each in bench.peers if each.driver != "raw_sql" and not each.needs_redis)]
    runs = by_turns(bench.rounds, {each.name: partial(_run, bench, each) for each in contestants}, bench.say)
    goal = "at most 2 statements/s, under 1 % of a core, a new job starts at once"
    return [Comparison(measure="idle worker", unit="statements/s", runs=runs, goal=goal)]


def _run(bench: Bench, contestant: Contestant) -> Run:
    database, server = f"{contestant.driver}_run", bench.arena.server
    server.create(database, bench.arena.tables(contestant))
    server.execute("postgres", f"ALTER DATABASE {database} SET log_statement = 'all'")
    with bench.arena.worker(contestant, database) as worker:
        time.sleep(SETTLE_SECONDS)
        before, read_to, seconds = worker.usage(), server.log.stat().st_size, bench.seconds or SECONDS
        time.sleep(seconds)
        used = worker.usage() - before
        with server.log.open("rb") as log:
            log.seek(read_to)
            lines = [line for line in log if b"LOG:  statement:" in line or b"LOG:  execute " in line]
        resident = resident_of(worker.family)
        bench.arena.call(contestant, database, "latency", 1, 0, marks_in=worker.marks)
        worker.wait_until(lambda: marks.stamps(worker.marks, "started"), seconds=10, pause=0.001)
        wait = marks.stamps(worker.marks, "started")[0] - marks.stamps(worker.marks, "enqueued")[0]
    details = {
        "worker_percent_of_a_core": 100 * used.worker / used.at,
        "postgres_percent_of_a_core": 100 * used.postgres / used.at,
        "resident_mib": resident / 2**20,
        "first_job_after_ms": 1000 * wait,
        "outside_cores": used.outside / used.at,
    }
    return Run(value=len(lines) / seconds, details=details)
