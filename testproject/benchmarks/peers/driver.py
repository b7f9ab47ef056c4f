"""What the drivers share: their verbs as a program, timing, and the arguments of the measured job."""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from testproject.benchmarks.peers import marks

DSN = os.environ.get("DATABASE_URL", "")
CHUNK = 5000
STEPS = 10  # of a job of steps


def arguments(number: int) -> dict[str, Any]:
    """Return the two arguments of a job."""
    return {"number": number, "note": "two JSON arguments"}


def drive(*verbs: Callable[..., Any], run: Callable[[Coroutine[Any, Any, Any]], Any] | None = None) -> None:
    """Call the verb that the command line names, and print what it returns as the last line, in JSON."""
    name, *given = sys.argv[1:]
    result = {each.__name__: each for each in verbs}[name](*map(json.loads, given))
    if run is not None and inspect.iscoroutine(result):
        result = run(result)
    print(json.dumps(result), flush=True)  # noqa: T201 - its answer to the command


class Stopwatch:
    """Starts when it is made; `result` says how long so many jobs took, in all and of this process's own time."""

    def __init__(self) -> None:
        self._start, self._own = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        """How long it runs."""
        return time.perf_counter() - self._start

    def result(self, jobs: int) -> dict[str, float]:
        """Stop."""
        own = time.process_time() - self._own
        return {"jobs": jobs, "seconds": self.seconds, "client_us_per_job": own * 1e6 / jobs}


def timed(call: Callable[[int], object], seconds: float) -> dict[str, float]:
    """Call with 0, 1, 2, … for so long, after a call that is not counted."""
    call(-1)
    watch, number = Stopwatch(), 0
    while watch.seconds < seconds:
        call(number)
        number += 1
    return watch.result(number)


async def timed_async(call: Callable[[int], Awaitable[object]], seconds: float) -> dict[str, float]:
    """`timed` for a coroutine function."""
    await call(-1)
    watch, number = Stopwatch(), 0
    while watch.seconds < seconds:
        await call(number)
        number += 1
    return watch.result(number)


def timed_chunks(call: Callable[[range], object], jobs: int, size: int = CHUNK) -> dict[str, float]:
    """Call with ranges of numbers until there are so many jobs."""
    watch = Stopwatch()
    for first in range(0, jobs, size):
        call(range(first, min(first + size, jobs)))
    return watch.result(jobs)


def paced(call: Callable[[int], object], jobs: int, gap: float) -> None:
    """Enqueue one job after another with a pause, and stamp each when its call has returned: it is committed then."""
    for number in range(jobs):
        call(number)
        marks.stamp(number, "enqueued")
        time.sleep(gap)
