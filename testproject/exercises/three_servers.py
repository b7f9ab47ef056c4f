"""Exercise 1: three servers, one nightly job."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import connection, transaction

from testproject.exercises.stage import Timeline, execute, expect, query, schema, together, value, wait_for

TABLES = (
    "CREATE TABLE exercise.invoice (id bigint GENERATED ALWAYS AS IDENTITY, night date, made_by text)",
    "CREATE TABLE exercise.lock (name text PRIMARY KEY, holder text, fence bigint, expires_at timestamptz)",
)
WRITE = "INSERT INTO exercise.invoice (night, made_by) VALUES ('2026-03-01', %s) RETURNING id"

# Whoever gets a row has the lock: nobody had it, or its time was over. The fence rises with each holder.
TAKE = """
INSERT INTO exercise.lock AS held VALUES ('nightly', %s, 1, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, fence = held.fence + 1, expires_at = excluded.expires_at
 WHERE held.expires_at < clock_timestamp()
RETURNING fence
"""

# The fence: the write and the lock on the row that says whose turn it is, in one statement.
WRITE_FENCED = """
WITH mine AS (SELECT 1 FROM exercise.lock WHERE name = 'nightly' AND fence = %s FOR UPDATE)
INSERT INTO exercise.invoice (night, made_by) SELECT '2026-03-01', %s FROM mine RETURNING id
"""
WRITE_ONCE = """
INSERT INTO exercise.invoice (night, made_by) VALUES ('2026-03-01', %s) ON CONFLICT (night) DO NOTHING RETURNING id
"""


def run(timeline: Timeline) -> None:
    """Go through five scenes; raises CommandError if one does not show what it should."""
    with schema(*TABLES):
        nobody_agrees(timeline)
        a_lock(timeline)
        a_lock_whose_time_runs_out(timeline)
        a_fence(timeline)
        a_business_key(timeline)


def begin(timeline: Timeline, title: str) -> None:
    execute("TRUNCATE exercise.invoice, exercise.lock")
    timeline.scene(title)


def invoices() -> int:
    return int(value("SELECT count(*) FROM exercise.invoice"))


def nobody_agrees(timeline: Timeline) -> None:
    """Three crontabs with the same line."""
    begin(timeline, "1. Three servers run the same nightly job")

    def server(name: str) -> Callable[[], None]:
        def act() -> None:
            query(WRITE, name)
            timeline.say(name, "writes the invoice")

        return act

    together(server("server 1"), server("server 2"), server("server 3"))
    expect(invoices() == 3, "three servers write three invoices")
    timeline.conclude("3 invoices: the customer pays three times")


def a_lock(timeline: Timeline) -> None:
    """Whoever gets the lock works; it is long enough."""
    begin(timeline, "2. A lock, good for a minute: whoever gets it works")

    def server(name: str) -> Callable[[], None]:
        def act() -> None:
            if value(TAKE, name, 60) is None:
                timeline.say(name, "does not get the lock, and goes home")
                return
            timeline.say(name, "gets the lock")
            query(WRITE, name)
            timeline.say(name, "writes the invoice")

        return act

    together(server("server 1"), server("server 2"), server("server 3"))
    expect(invoices() == 1, "one server has the lock")
    timeline.conclude("1 invoice")


def a_lock_whose_time_runs_out(timeline: Timeline) -> None:
    """Its holder is paused: swapping, a stopped container, a lost network."""
    begin(timeline, "3. The same lock, good for 0.3 s, and its holder pauses for longer")
    paused_server(timeline, lambda name, fence: query(WRITE, name))
    expect(invoices() == 2, "a lock that expires lets two in")
    timeline.conclude("2 invoices: nobody did anything wrong, and the lock protected nothing")


def a_fence(timeline: Timeline) -> None:
    """The number that came with the lock goes with each write."""
    begin(timeline, "4. The same pause, but each write shows the number that came with the lock: a fence")
    paused_server(timeline, lambda name, fence: query(WRITE_FENCED, fence, name))
    expect(invoices() == 1, "a fence keeps the late one out")
    timeline.conclude("1 invoice: who was replaced can't write any more")


def paused_server(timeline: Timeline, write: Callable[[str, int], list[tuple[int]]]) -> None:
    """Server 1 takes the lock and stops; server 2 takes it over and writes; then server 1 goes on."""
    first_has_it, second_is_done = threading.Event(), threading.Event()

    def report(name: str, written: list[tuple[int]]) -> None:
        timeline.say(name, "writes the invoice" if written else "writes 0 rows: it was replaced")

    def first() -> None:
        fence = value(TAKE, "server 1", 0.3)
        timeline.say("server 1", f"gets the lock (number {fence}), and is stopped in the middle")
        first_has_it.set()
        second_is_done.wait()
        timeline.say("server 1", "wakes up, and goes on with its next line")
        report("server 1", write("server 1", fence))

    def second() -> None:
        first_has_it.wait()
        fence = wait_for(lambda: value(TAKE, "server 2", 60), "the lock")
        timeline.say("server 2", f"gets the lock (number {fence}), as its time is over")
        report("server 2", write("server 2", fence))
        second_is_done.set()

    together(first, second)


def a_business_key(timeline: Timeline) -> None:
    """What must not exist twice has a name: also against whoever comes when all is done."""
    begin(timeline, "5. No lock at all, but a unique key on the night: a business key")
    execute("CREATE UNIQUE INDEX ON exercise.invoice (night)")

    def server(name: str) -> Callable[[], None]:
        def act() -> None:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(WRITE_ONCE, [name])
                timeline.say(name, "writes the invoice" if cursor.rowcount else "writes 0 rows: there is one")

        return act

    together(server("server 1"), server("server 2"))
    server("server 3")()
    expect(invoices() == 1, "a unique key lets one in")
    timeline.conclude("1 invoice, whoever runs whenever, also an hour later, when any lock is free again")
