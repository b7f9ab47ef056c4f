"""What `context.batches()` costs over the same loop written by hand."""

from __future__ import annotations

from functools import partial

from testproject.benchmarks.bench import Bench
from testproject.benchmarks.rounds import Comparison, Run, by_turns, ratios

ROWS = 200_000
FILL = (
    "INSERT INTO shop_customer (name, email) VALUES ('Wholesale', 'wholesale@example.com')",
    "INSERT INTO shop_order (customer_id, placed_at, card) SELECT min(id), now(), 'works' FROM shop_customer",
    "INSERT INTO shop_orderline (order_id, product, quantity, unit_price)"
    " SELECT max(id), 'Punched cards', 1, 10 FROM shop_order, generate_series(1, {rows}) GROUP BY generate_series",
)
WORKS = {"reading": False, "writing": True}


def measure(bench: Bench) -> list[Comparison]:
    """Go through the rows by turns: reading them, and writing each batch with one UPDATE as well."""
    rows = bench.rows or ROWS

    def fill(database: str) -> None:
        for statement in FILL:
            bench.arena.server.execute(database, statement.replace("{rows}", str(rows)))

    filled = bench.arena.prepared(bench.ours, f"lines_{rows}", fill)
    return [_compare(bench, filled, rows, work, writes) for work, writes in WORKS.items()]


def _compare(bench: Bench, filled: str, rows: int, work: str, writes: bool) -> Comparison:
    runs = by_turns(
        bench.rounds,
        {way: partial(_run, bench, filled, way, writes) for way in ("batches", "by hand")},
        bench.say,
    )
    return Comparison(
        measure=f"a job of {rows:,} rows in batches of 1,000, {work}",
        unit="rows/s",
        runs=runs,
        ratios={"batches / by hand": ratios(runs, "batches", "by hand")},
        goal="at least 0.90",
    )


def _run(bench: Bench, filled: str, way: str, writes: bool) -> Run:
    database = f"{bench.ours.driver}_run"
    bench.arena.server.create(database, filled)
    answer = bench.arena.call(bench.ours, database, "batches", way, writes)
    bench.arena.server.drop(database)
    return Run(value=answer["jobs"] / answer["seconds"], details=answer)
