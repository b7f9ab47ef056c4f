"""Exercise 2: workers side by side on a queue of fifty lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from testproject.exercises.queue_in_fifty_lines import TABLES, claim, enqueue, finish
from testproject.exercises.stage import Timeline, execute, expect, query, schema, together, value

JOBS = 20_000
LEFT = 100
BATCH = 100
WORKERS = 4


def run(timeline: Timeline) -> None:
    """Enqueue, work, count, weigh."""
    with schema(*TABLES):
        timeline.scene(f"1. {JOBS:,} jobs are enqueued")
        enqueue([f"order {number}" for number in range(JOBS)])
        timeline.say("web", f"inserts {JOBS:,} rows")
        work(timeline)
        count(timeline)
        weigh(timeline)


def work(timeline: Timeline) -> None:
    """Workers claim until nothing is left."""
    timeline.scene(f"2. {WORKERS} workers claim them, {BATCH} at a time, with SKIP LOCKED")
    began_at = time.monotonic()
    # Nobody begins before all are there.
    all_there = threading.Barrier(WORKERS)

    def worker(name: str) -> Callable[[], int]:
        def act() -> int:
            all_there.wait()
            done = 0
            while jobs := claim(name, BATCH):
                if not done:
                    timeline.say(name, f"claims jobs {jobs[0][0]} to {jobs[-1][0]}, then more")
                finish(name, [job_id for job_id, _ in jobs])
                done += len(jobs)
            timeline.say(name, f"finds nothing more; it did {done:,}")
            return done

        return act

    done = together(*(worker(f"worker {number}") for number in range(1, WORKERS + 1)))
    expect(sum(done) == JOBS, "all jobs were done")
    timeline.conclude(f"{JOBS / (time.monotonic() - began_at):,.0f} jobs a second, and nobody waited for anybody")


def count(timeline: Timeline) -> None:
    """None twice."""
    timeline.scene("3. Was any job run twice, or not at all?")
    rows = query("SELECT runs, count(*) FROM exercise.job GROUP BY runs ORDER BY runs")
    for runs, jobs in rows:
        timeline.say("database", f"run {runs} time{'' if runs == 1 else 's'}: {jobs:,} jobs")
    expect(rows == [(1, JOBS)], "each job was run once")
    timeline.conclude("each once. What the fifty lines lack: had a worker died, its jobs would be running for ever")


def weigh(timeline: Timeline) -> None:
    """The partial index has what is ready; the ordinary one has all that ever was."""
    timeline.scene(f"4. {LEFT} jobs are ready beside {JOBS:,} that are done")
    enqueue([f"late order {number}" for number in range(LEFT)])
    execute("VACUUM exercise.job", "REINDEX TABLE exercise.job")
    sizes = {
        name: value("SELECT pg_relation_size(%s::regclass)", f"exercise.{name}")
        for name in ("job", "job_status", "job_ready")
    }
    labels = {"job": "table", "job_status": "index on (status, id)", "job_ready": "partial index of what is ready"}
    for name, size in sizes.items():
        timeline.say("database", f"{labels[name]:<32} {size / 1024:>7,.0f} kB")
    expect(sizes["job_ready"] * 10 < sizes["job_status"] < sizes["job"], "the partial index is small")
    timeline.conclude(
        "the claim reads the smallest, whatever the history: it is as quick after a year as on the first day"
    )
