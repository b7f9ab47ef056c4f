"""Many schedules of which some are due at once, decided as a leading scheduler decides them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.db import connection

from django_reliable_jobs.engine import schedules as engine
from django_reliable_jobs.engine import tick as engine_tick
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.recurrence import Cron, Every, Recurrence
from django_reliable_jobs.schedule_options import ScheduleOptions
from django_reliable_jobs.testing import at

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
DUE = MIDNIGHT + timedelta(hours=2, minutes=30)


def schedules(total: int, due: int) -> None:
    """Make schedules that run each night in Berlin: some of them at one moment, all others later."""
    Schedule.objects.all().delete()
    for name, count, expression in (("due", due, "30 3 * * *"), ("later", total - due, "0 5 * * *")):
        options = ScheduleOptions(
            recurrence=Cron(expression, timezone="Europe/Berlin"), kwargs={"number": 1, "note": "nightly"}
        )
        with at(MIDNIGHT):
            first = engine.create("default", name=name, task="benchmark.noop", options=options)
        columns = [each.column for each in Schedule._meta.concrete_fields if each.column != "id"]
        values = ["given.name || ' ' || copy.number" if each == "name" else f"given.{each}" for each in columns]
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO django_reliable_jobs_schedule ({', '.join(columns)}) SELECT {', '.join(values)}"
                " FROM django_reliable_jobs_schedule given, generate_series(2, %s) AS copy(number) WHERE given.id = %s",
                [count, first.pk],
            )


def tick() -> dict[str, float]:
    """Decide all that is due, and look when the next is."""
    with at(DUE - timedelta(seconds=1)):
        engine_tick.tick("default")  # connected, and all loaded
    with at(DUE):
        start, own = time.perf_counter(), time.process_time()
        ticks = jobs = 0
        while (done := engine_tick.tick("default")).due:
            ticks, jobs = ticks + 1, jobs + len(done.jobs)
        seconds, own = time.perf_counter() - start, time.process_time() - own
        start = time.perf_counter()
        engine_tick.seconds_until_due("default")
        looked = time.perf_counter() - start
    return {
        "seconds": seconds,
        "jobs": jobs,
        "ticks": ticks,
        "scheduler_us_per_job": own * 1e6 / max(jobs, 1),
        "next_due_after_ms": looked * 1000,
    }


COMMON = {
    "every minute": lambda: Cron("* * * * *", timezone="Europe/Berlin"),
    "weekdays at 02:30": lambda: Cron("30 2 * * 1-5", timezone="Europe/Berlin"),
    "every 15 minutes in office hours": lambda: Cron("*/15 8-18 * * 1-5", timezone="America/New_York"),
    "the first of the month": lambda: Cron("0 6 1 * *", timezone="Asia/Tokyo"),
    "every 90 minutes": lambda: Every(minutes=90),
}
SPARSE = {
    "29 February": lambda: Cron("0 0 29 2 *", timezone="America/New_York"),
    "a fifth Friday of February": lambda: Cron("0 12 * 2 5#5", timezone="Australia/Lord_Howe"),
    "the last weekday of the year": lambda: Cron("0 9 31W 12 *", timezone="Europe/London"),
}
MOMENTS = [MIDNIGHT + timedelta(days=37 * number, minutes=11 * number) for number in range(200)]  # over twenty years


def next_runs() -> dict[str, dict[str, dict[str, float]]]:
    """Compute next runs; return the microseconds of one, and of the first, with which the expression is parsed."""
    return {
        kind: {name: _next_run(make) for name, make in recurrences.items()}
        for kind, recurrences in (("common", COMMON), ("sparse", SPARSE))
    }


def _next_run(make: Callable[[], Recurrence]) -> dict[str, float]:
    start = time.perf_counter()
    recurrence = make()
    recurrence.next_after(MIDNIGHT)
    first = time.perf_counter() - start
    start = time.perf_counter()
    for moment in MOMENTS:
        recurrence.next_after(moment)
    return {"us": (time.perf_counter() - start) * 1e6 / len(MOMENTS), "first_us": first * 1e6}
