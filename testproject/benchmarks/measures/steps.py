"""How many steps a second, each of them kept before the next begins."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from testproject.benchmarks.arena import Failed
from testproject.benchmarks.bench import Bench
from testproject.benchmarks.contestants import Contestant
from testproject.benchmarks.peers.driver import STEPS
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

JOBS = 1500
STEP_PEERS = ("dbos", "absurd")
PATIENCE_SECONDS = 180


def measure(bench: Bench) -> list[Comparison]:
    """Run the same jobs of ten steps by turns, with as many threads each; enqueueing is not counted."""
    ours = replace(bench.ours, driver="ours_steps", left=None)
    contestants = [ours, *(peer for peer in bench.peers if peer.driver in STEP_PEERS)]
    runs = by_turns(bench.rounds, {each.name: partial(_run, bench, each) for each in contestants}, bench.say)
    return [
        Comparison(
            measure="steps",
            unit="steps/s",
            runs=runs,
            ratios={f"ours / {each.name}": ratios(runs, "ours", each.name) for each in contestants[1:]},
            goal="at least 5 times DBOS and Absurd; at most 1 ms a step over the statement that it writes",
        )
    ]


def _run(bench: Bench, contestant: Contestant) -> Run:
    jobs, database = bench.jobs or JOBS, f"{contestant.driver}_run"
    if contestant.name != "ours":
        jobs //= 3
    server = bench.arena.server
    server.create(database, bench.arena.tables(contestant))
    bench.arena.call(contestant, database, "bulk", jobs)
    steps = jobs * STEPS
    with bench.arena.worker(contestant, database) as worker:
        if not worker.wait_until(lambda: worker.count()[0] >= steps, seconds=PATIENCE_SECONDS, pause=0.01):
            raise Failed(
                f"{contestant.name} did {worker.count()[0]} of {steps} steps:\n{worker.log.read_text()[-2000:]}"
            )
        ended, (count, started) = time.time(), worker.count()
        used = worker.usage()
    server.drop(database)
    seconds = ended - (started or ended)
    details = {"steps": count, "seconds": seconds, "worker_us_per_step": used.worker * 1e6 / count}
    return Run(value=count / seconds, details=details)
