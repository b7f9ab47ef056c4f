"""Celery with Redis as its broker; the pool is named by BENCHMARK_POOL."""

from __future__ import annotations

import os

from celery import Celery

from testproject.benchmarks.peers import marks
from testproject.benchmarks.peers.driver import arguments, drive, paced, timed, timed_chunks

app = Celery("benchmark", broker=os.environ["BENCHMARK_REDIS"])
app.conf.update(
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=16,
    worker_send_task_events=False,
)


@app.task(name="noop")
def noop(number: int, note: str) -> None:
    """Do nothing but count that it ran."""
    marks.ran()


@app.task(name="stamp")
def stamp(number: int, note: str) -> None:
    """Note the moment of the start."""
    marks.stamp(number)


def setup() -> None:
    """Throw away what other runs left."""
    import redis

    redis.Redis.from_url(os.environ["BENCHMARK_REDIS"]).flushall()


def enqueue(seconds: float) -> dict[str, float]:
    """Enqueue one by one."""
    return timed(lambda number: noop.delay(**arguments(number)), seconds)


def bulk(jobs: int) -> dict[str, float]:
    """Enqueue one by one, on one connection."""
    with app.producer_pool.acquire(block=True) as producer:

        def enqueue_all(numbers: range) -> None:
            for number in numbers:
                noop.apply_async(kwargs=arguments(number), producer=producer)

        return timed_chunks(enqueue_all, jobs)


def worker(concurrency: int) -> None:
    """Run jobs."""
    pool = os.environ.get("BENCHMARK_POOL", "prefork")
    name = f"worker-{os.getpid()}@benchmark"
    options = ["-P", pool, "-c", str(concurrency), "-l", "WARNING", "-n", name, "--without-gossip", "--without-mingle"]
    app.worker_main(["worker", *options])


def latency(jobs: int, gap: float) -> None:
    """Enqueue at a slow pace."""
    paced(lambda number: stamp.delay(**arguments(number)), jobs, gap)


if __name__ == "__main__":
    drive(setup, enqueue, bulk, worker, latency)
