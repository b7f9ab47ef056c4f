"""Procrastinate: asynchronous worker, synchronous enqueue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from testproject.benchmarks.peers import marks
from testproject.benchmarks.peers.driver import DSN, arguments, drive, paced, timed, timed_chunks

logging.getLogger("procrastinate").setLevel(logging.ERROR)
app = App(connector=PsycopgConnector(conninfo=DSN, min_size=4, max_size=20))


@app.task(name="noop")
async def noop(number: int, note: str) -> None:
    """Do nothing but count that it ran."""
    marks.ran()


@app.task(name="stamp")
async def stamp(number: int, note: str) -> None:
    """Note the moment of the start."""
    marks.stamp(number)


@contextmanager
def _synchronous() -> Iterator[App]:
    connector = SyncPsycopgConnector(conninfo=DSN, min_size=1, max_size=2)
    with app.replace_connector(connector) as replaced, replaced.open():
        yield replaced


def setup() -> None:
    """Make the tables."""
    with _synchronous() as opened:
        opened.schema_manager.apply_schema()


def enqueue(seconds: float) -> dict[str, float]:
    """Enqueue one per transaction."""
    with _synchronous() as opened:
        task = opened.configure_task("noop")
        return timed(lambda number: task.defer(**arguments(number)), seconds)


def bulk(jobs: int) -> dict[str, float]:
    """Enqueue by lists."""
    with _synchronous() as opened:
        task = opened.configure_task("noop")
        return timed_chunks(lambda numbers: task.batch_defer(*map(arguments, numbers)), jobs)


def worker(concurrency: int) -> None:
    """Run jobs."""

    async def work() -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=concurrency)

    asyncio.run(work())


def latency(jobs: int, gap: float) -> None:
    """Enqueue at a slow pace."""
    with _synchronous() as opened:
        task = opened.configure_task("stamp")
        paced(lambda number: task.defer(**arguments(number)), jobs, gap)


if __name__ == "__main__":
    drive(setup, enqueue, bulk, worker, latency)
