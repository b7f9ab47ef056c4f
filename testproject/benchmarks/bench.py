"""What every measure is given: the arena, who takes part, and how much of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from testproject.benchmarks.arena import Arena
from testproject.benchmarks.contestants import OURS, Contestant


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One invocation. `jobs`: None leaves the number to the measure; likewise `rows` and `seconds`."""

    arena: Arena
    peers: list[Contestant]
    rounds: int
    say: Callable[[str], None]
    jobs: int | None = None
    rows: int | None = None
    seconds: float | None = None
    processes: int = 1
    threads: int = OURS.concurrency

    @property
    def ours(self) -> Contestant:
        """This project, with the number of threads that was asked for."""
        return replace(OURS, concurrency=self.threads)

    def jobs_for(self, contestant: Contestant, most: int) -> int:
        """Return how many jobs a run has: fewer for those who would take minutes."""
        return min(self.jobs or most, FEWER.get(contestant.name, most))

    def filled(
        self, contestant: Contestant, jobs: int, *, label: str = "", sql: tuple[str, ...] = (), **values: Any
    ) -> str:
        """Return a prepared database: rows by `sql`, then so many ready jobs."""

        def fill(database: str) -> None:
            for statement in sql:
                for name, value in values.items():
                    statement = statement.replace(f"{{{name}}}", str(value))
                self.arena.server.execute(database, statement)
            self.fill(contestant, database, jobs)

        return self.arena.prepared(contestant, f"{label or 'full'}_{jobs}", fill)

    def fill(self, contestant: Contestant, database: str, jobs: int) -> None:
        """Enqueue jobs the fastest way."""
        owner = OURS if contestant.tables else contestant
        self.arena.call(owner, database, "bulk", jobs)


# What a slower peer gets through in 5 to 15 seconds.
FEWER = {"procrastinate": 2_500, "django-tasks-db": 1_200, "oban": 15_000, "celery": 5_000, "celery-threads": 5_000}
