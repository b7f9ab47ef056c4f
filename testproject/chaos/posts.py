"""Which processes a run has: workers of different make, schedulers, one of each with a wrong clock, and producers."""

from __future__ import annotations

from pathlib import Path
from random import Random

from testproject.chaos.fleet import Post, python
from testproject.chaos.proxy import Proxy
from testproject.chaos.server import ChaosServer

SHUTDOWN_SECONDS = 4.0
SKEW = "-2h"
SCHEDULERS = 3

_FAKETIME = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


def find_faketime() -> Path | None:
    """Return the library that gives a process a wrong clock, if it is installed."""
    found = [path for pattern in _FAKETIME for path in sorted(Path("/").glob(pattern[1:]))]
    return found[0] if found else None


def plan_posts(
    server: ChaosServer, proxy: Proxy, *, workers: int, producers: int, rate: float, lease: float, dice: Random
) -> list[Post]:
    """Return the posts of a run. Every process has a route of its own."""
    posts = []
    for number in range(workers):
        route = proxy.open_route(f"worker-{number + 1}")
        environment = _environment(server, route.port, lease, is_skewed=number == 0)
        posts.append(Post(name=route.name, command=_worker(number), environment=environment, route=route))
    for number in range(SCHEDULERS):
        route = proxy.open_route(f"scheduler-{number + 1}")
        environment = _environment(server, route.port, lease, is_skewed=number == 0)
        command = python("manage.py", "runscheduler")
        posts.append(Post(name=route.name, command=command, environment=environment, route=route, is_worker=False))
    for number in range(producers):
        route = proxy.open_route(f"producer-{number + 1}")
        seed = str(dice.getrandbits(32))
        command = python("-m", "testproject.chaos.producer", seed, str(rate / producers))
        environment = _environment(server, route.port, lease)
        posts.append(Post(name=route.name, command=command, environment=environment, route=route, is_worker=False))
    return posts


def _worker(number: int) -> list[str]:
    shapes = [("--threads", "4"), ("--threads", "2"), ("--processes", "2", "--threads", "4"), ("--threads", "8")]
    shape = shapes[number % len(shapes)]
    return python("manage.py", "runworker", "--shutdown-timeout", str(SHUTDOWN_SECONDS), *shape)


def _environment(server: ChaosServer, port: int, lease: float, *, is_skewed: bool = False) -> dict[str, str]:
    environment = {
        "DATABASE_URL": server.url(port),
        "DJANGO_SETTINGS_MODULE": "testproject.chaos.settings",
        "CHAOS_LEASE_SECONDS": str(lease),
        "CHAOS_SCHEDULES": "1",
        "PYTHONUNBUFFERED": "1",
    }
    faketime = find_faketime()
    if is_skewed and faketime is not None:
        # The clock that people read, not the one that waits are measured by.
        environment |= {"LD_PRELOAD": str(faketime), "FAKETIME": SKEW, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return environment
