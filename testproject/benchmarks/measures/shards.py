"""What a second database brings, on a machine of its own: a server and its worker share one core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from testproject.benchmarks.arena import Arena, Failed
from testproject.benchmarks.bench import Bench
from testproject.benchmarks.measures.draining import drain
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 60_000


def measure(bench: Bench) -> list[Comparison]:
    """Drain one database, and two at the same time, each with a core for its server and its worker."""
    cores = two_cores()
    with Arena(bench.arena.home) as other:
        shards = [replace(bench, arena=arena) for arena in (bench.arena, other)]
        for shard, core in zip(shards, cores, strict=True):
            shard.arena.keep_to(core)
        contestants = {"one database": partial(_run, shards[:1]), "two databases": partial(_run, shards)}
        runs = by_turns(bench.rounds, contestants, bench.say)
        bench.arena.keep_to(None)
    return [
        Comparison(
            measure="drain, a core for each database and its worker",
            unit="jobs/s",
            runs=runs,
            ratios={"two / one": ratios(runs, "two databases", "one database")},
            goal="twice as many",
        )
    ]


def two_cores() -> list[int]:
    """Return the numbers of two cores. Raises Failed if there is one."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise Failed("Two databases are measured on two cores, and there is one.")
    return cores


def _run(shards: Sequence[Bench]) -> Run:
    jobs = shards[0].jobs or JOBS
    filled = [shard.filled(shard.ours, jobs) for shard in shards]
    with ThreadPoolExecutor(len(shards)) as pool:
        work = [pool.submit(drain, shard, shard.ours, name, jobs) for shard, name in zip(shards, filled, strict=True)]
        runs = [each.result() for each in work]
    return Run(value=sum(each.value for each in runs), details={"each": [each.value for each in runs]})
