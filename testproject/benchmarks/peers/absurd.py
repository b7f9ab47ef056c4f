"""Absurd: tasks of steps. Its tables are made by the file that ABSURD_SQL names: sql/absurd.sql of its repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import Absurd

from testproject.benchmarks.peers import marks
from testproject.benchmarks.peers.driver import DSN, STEPS, Stopwatch, drive


def _app() -> Absurd:
    app = Absurd(DSN)

    @app.register_task(name="parts")
    def parts(params: Any, context: Any) -> None:
        for each in range(STEPS):
            context.step(f"part {each}", lambda number=each: _part(number))

    return app


def _part(number: int) -> int:
    marks.ran()
    return number


def setup() -> None:
    """Make the tables."""
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute(Path(os.environ["ABSURD_SQL"]).read_bytes())
    _app().create_queue()


def bulk(jobs: int) -> dict[str, float]:
    """Enqueue one by one, which is the way it has."""
    app, watch = _app(), Stopwatch()
    for number in range(jobs):
        app.spawn("parts", {"number": number})
    return watch.result(jobs)


def worker(concurrency: int) -> None:
    """Run tasks."""
    _app().start_worker(concurrency=concurrency)


if __name__ == "__main__":
    drive(setup, bulk, worker)
