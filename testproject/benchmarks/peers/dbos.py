"""DBOS: workflows of steps, run by threads of one process without a queue between, which is the fastest way it has."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
from dbos import DBOS, DBOSConfig

from testproject.benchmarks.peers import marks
from testproject.benchmarks.peers.driver import DSN, STEPS, Stopwatch, drive


def _launch() -> None:
    config: DBOSConfig = {
        "name": "benchmark",
        "system_database_url": DSN.replace("postgres://", "postgresql://"),
        "run_admin_server": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()


@DBOS.step()
def part(number: int) -> int:
    """Do nothing but count that it ran."""
    marks.ran()
    return number


@DBOS.workflow()
def parts(number: int) -> None:
    """Do so many steps."""
    for each in range(STEPS):
        part(each)


def setup() -> None:
    """Make the tables."""
    _launch()
    DBOS.destroy()
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute("CREATE TABLE benchmark_workflows (number int)")


def bulk(jobs: int) -> dict[str, float]:
    """Say how many workflows the worker is to run."""
    watch = Stopwatch()
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute("INSERT INTO benchmark_workflows SELECT generate_series(1, %s)", [jobs])
    return watch.result(jobs)


def worker(concurrency: int) -> None:
    """Run workflows."""
    _launch()
    with psycopg.connect(DSN, autocommit=True) as connection:
        numbers = [number for (number,) in connection.execute("SELECT number FROM benchmark_workflows")]
    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(parts, numbers))
    while True:
        time.sleep(1)


if __name__ == "__main__":
    drive(setup, bulk, worker)
