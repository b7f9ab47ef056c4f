"""PgQueuer: asyncpg and uvloop."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver

from testproject.benchmarks.peers import marks
from testproject.benchmarks.peers.driver import CHUNK, DSN, Stopwatch, arguments, drive, timed_async


async def _queries() -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(DSN)))


def _payload(number: int) -> bytes:
    return json.dumps(arguments(number)).encode()


async def setup() -> None:
    """Make the tables."""
    await (await _queries()).install()


async def enqueue(seconds: float) -> dict[str, float]:
    """Enqueue one per transaction."""
    queries = await _queries()
    return await timed_async(lambda number: queries.enqueue("noop", _payload(number)), seconds)


async def bulk(jobs: int) -> dict[str, float]:
    """Enqueue by lists, in one transaction."""
    connection = await asyncpg.connect(DSN)
    queries, numbers = Queries(AsyncpgDriver(connection)), range(jobs)
    given = [arguments(number) for number in numbers]
    watch = Stopwatch()
    async with connection.transaction():
        for first in range(0, jobs, CHUNK):
            payloads = [json.dumps(each).encode() for each in given[first : first + CHUNK]]
            await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))
    return watch.result(jobs)


async def worker(concurrency: int) -> None:
    """Run jobs; `concurrency` is the batch size."""
    manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(DSN)))

    @manager.entrypoint("noop")
    async def noop(job: Any) -> None:
        json.loads(job.payload)
        marks.ran()

    @manager.entrypoint("stamp")
    async def stamp(job: Any) -> None:
        marks.stamp(json.loads(job.payload)["number"])

    await manager.run(batch_size=concurrency)


async def latency(jobs: int, gap: float) -> None:
    """Enqueue at a slow pace."""
    queries = await _queries()
    for number in range(jobs):
        await queries.enqueue("stamp", _payload(number))
        marks.stamp(number, "enqueued")
        await asyncio.sleep(gap)


if __name__ == "__main__":
    drive(setup, enqueue, bulk, worker, latency, run=uvloop.run)
