"""Oban for Python: asyncio and uvloop."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import uvloop
from oban import Oban, job
from oban._config import Config
from oban.schema import install

from testproject.benchmarks.peers import marks
from testproject.benchmarks.peers.driver import DSN, Stopwatch, arguments, drive, timed_async


@job(queue="default")
async def noop(number: int, note: str) -> None:
    """Do nothing but count that it ran."""
    marks.ran()


@job(queue="default")
async def stamp(number: int, note: str) -> None:
    """Note the moment of the start."""
    marks.stamp(number)


async def _pool() -> Any:
    return await Config(dsn=DSN, pool_min_size=1, pool_max_size=10).create_pool()


async def setup() -> None:
    """Make the tables."""
    pool = await _pool()
    await install(pool)
    await pool.close()


async def enqueue(seconds: float) -> dict[str, float]:
    """Enqueue one per transaction."""
    pool = await _pool()
    oban = Oban(pool=pool)
    result = await timed_async(lambda number: oban.enqueue(noop.new(**arguments(number))), seconds)
    await pool.close()
    return result


async def bulk(jobs: int) -> dict[str, float]:
    """Enqueue by lists."""
    pool = await _pool()
    oban = Oban(pool=pool)
    watch = Stopwatch()
    for first in range(0, jobs, 1000):
        await oban.enqueue_many([noop.new(**arguments(number)) for number in range(first, min(first + 1000, jobs))])
    result = watch.result(jobs)
    await pool.close()
    return result


async def worker(concurrency: int) -> None:
    """Run jobs; `concurrency` is the limit of the queue."""
    oban = Oban(pool=await _pool(), queues={"default": concurrency}, node=f"node-{os.getpid()}", name=None)
    await oban.start()
    await asyncio.Event().wait()


async def latency(jobs: int, gap: float) -> None:
    """Enqueue at a slow pace."""
    pool = await _pool()
    oban = Oban(pool=pool)
    for number in range(jobs):
        await oban.enqueue(stamp.new(**arguments(number)))
        marks.stamp(number, "enqueued")
        await asyncio.sleep(gap)
    await pool.close()


if __name__ == "__main__":
    from testproject.benchmarks.peers import oban as this

    # Workers find the functions by their module's path, which is not __main__.
    drive(this.setup, this.enqueue, this.bulk, this.worker, this.latency, run=uvloop.run)
