"""One drain: a worker starts on a filled table and runs until the table says that nothing is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from testproject.benchmarks.arena import Failed, RunningWorker
from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.rounds import Run
from testproject.benchmarks.usage import Usage

PATIENCE_SECONDS = 120
POLL = 0.005
LAST_PART = 0.1  # of the jobs, for the rate at the end


@contextlib.contextmanager
def nothing_beside(database: str) -> Iterator[None]:
    """Let the worker be alone."""
    yield


def drain(
    bench: Bench,
    contestant: Contestant,
    filled: str,
    jobs: int,
    *,
    processes: int = 1,
    beside: Callable[[str], contextlib.AbstractContextManager[None]] = nothing_beside,
) -> Run:
    """Run the jobs of a copy of a filled database; jobs / (nothing left - start of the first), the start-up excluded.

    `beside` is entered with the name of the copy while the worker runs.
    """
    arena, database = bench.arena, f"{contestant.driver}_run"
    if contestant.needs_redis:
        database = "postgres"
        arena.call(contestant, database, "setup")
        arena.call(contestant, database, "bulk", jobs)
    else:
        arena.server.create(database, filled)
    if arena.server.has_statements:
        arena.server.value("postgres", "SELECT pg_stat_statements_reset()")
    written = arena.server.written()
    with beside(database), arena.worker(contestant, database, processes=processes) as worker:
        if not worker.wait_until(lambda: worker.count()[1], seconds=PATIENCE_SECONDS):
            raise Failed(f"no job of {contestant.name} started:\n{worker.log.read_text()[-3000:]}")
        before, (ran_before, _) = worker.usage(), worker.count()
        timeline = _watch(bench, contestant, database, worker, jobs)
        ended, used = time.time(), worker.usage() - before
        count, started = worker.count()
    details = {"jobs": count, "seconds": ended - (started or ended), **_per_job(count - ran_before, used)}
    details["wal_bytes_per_job"] = (arena.server.written() - written) / count
    details["rate_at_the_end"] = _rate_at_the_end(timeline, ended, count)
    if not contestant.needs_redis:
        details |= _counted(bench, database, count)
        arena.server.drop(database)
    return Run(value=count / (ended - (started or ended)), details=details)


def _watch(
    bench: Bench, contestant: Contestant, database: str, worker: RunningWorker, jobs: int
) -> list[tuple[float, int]]:
    """Wait for the end; the table is asked only when the jobs' own count says that it is near."""
    timeline: list[tuple[float, int]] = []

    def nearly_all() -> bool:
        timeline.append((time.time(), worker.count()[0]))
        return timeline[-1][1] >= jobs * (0.98 if contestant.left else 1)

    if not worker.wait_until(nearly_all, seconds=PATIENCE_SECONDS, pause=0.02):
        bench.say(f"   {contestant.name}: cut after {PATIENCE_SECONDS} s at {timeline[-1][1]} of {jobs} jobs")
        return timeline
    if contestant.left is not None:
        with bench.arena.server.connect(database) as connection:

            def nothing_left() -> bool:
                row = connection.execute((contestant.left or "").encode()).fetchone()
                return row is not None and not row[0]

            worker.wait_until(nothing_left, seconds=PATIENCE_SECONDS, pause=POLL)
    return timeline


def _per_job(jobs: int, used: Usage) -> dict[str, float]:
    # Of the jobs that ran after the first reading; few jobs may all be over by then.
    details = {"outside_cores": used.outside / used.at, "stolen_cores": used.stolen / used.at}
    if jobs > 0:
        details |= {
            "worker_us_per_job": used.worker * 1e6 / jobs,
            "postgres_us_per_job": used.postgres * 1e6 / jobs,
            "worker_cores": used.worker / used.at,
            "postgres_cores": used.postgres / used.at,
        }
    return details


def _rate_at_the_end(timeline: list[tuple[float, int]], ended: float, count: int) -> float:
    at, done = next((each for each in timeline if each[1] >= count * (1 - LAST_PART)), timeline[-1])
    return (count - done) / max(ended - at, 0.001)


def _counted(bench: Bench, database: str, jobs: int) -> dict[str, float]:
    server = bench.arena.server
    commits = server.value("postgres", f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{database}'")
    counted = {"commits_per_job": commits / jobs}
    if server.has_statements:
        calls = server.value(
            "postgres",
            f"""SELECT sum(calls)::bigint FROM pg_stat_statements
                  JOIN pg_database ON oid = dbid WHERE datname = '{database}'""",
        )
        counted["statements_per_job"] = (calls or 0) / jobs
    return counted
