"""Where the processor time went, and what PostgreSQL counted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields

import psutil

from testproject.benchmarks.server import PostgresServer


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Counters at one moment, or what was used between two, in seconds."""

    at: float
    worker: float
    postgres: float
    command: float
    outside: float  # by processes that have nothing to do with the benchmark
    stolen: float  # by the machine that this machine is a guest of

    def __sub__(self, earlier: Usage) -> Usage:
        return Usage(**{each.name: getattr(self, each.name) - getattr(earlier, each.name) for each in fields(Usage)})


def now(workers: Iterable[psutil.Process], server: PostgresServer, others: Iterable[psutil.Process] = ()) -> Usage:
    """Return the counters of this moment; `others` belong to the benchmark, and count as the command does."""
    machine = psutil.cpu_times()
    busy = machine.user + machine.nice + machine.system + machine.irq + machine.softirq
    worker, postgres = sum(map(seconds_of, workers)), seconds_of_family(server.process)
    command = seconds_of(psutil.Process(os.getpid())) + sum(map(seconds_of, others))
    return Usage(
        at=time.time(),
        worker=worker,
        postgres=postgres,
        command=command,
        outside=busy - worker - postgres - command,
        stolen=machine.steal,
    )


def seconds_of(process: psutil.Process) -> float:
    """Return the processor time that a process has used; none if it has gone."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def seconds_of_family(parent: psutil.Process) -> float:
    """Return the processor time of a process and its children, those that have ended included."""
    times = parent.cpu_times()
    ended = float(times.children_user + times.children_system)
    return seconds_of(parent) + ended + sum(map(seconds_of, parent.children()))


def resident_of(processes: Iterable[psutil.Process]) -> int:
    """Return the bytes that processes keep in memory."""
    return sum(each.memory_info().rss for each in processes)
