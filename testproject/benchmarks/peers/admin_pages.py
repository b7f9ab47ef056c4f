"""The pages of the admin, asked for as a browser does, by Django's test client: milliseconds, and statements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_reliable_jobs.models import Job, Schedule, Worker
from testproject.benchmarks.peers.admin_rows import RARE_KEY, SCHEDULES


def admin_pages(turns: int) -> dict[str, Any]:
    """Ask for each page so many times, after a first time that is not counted; return what it took."""
    client = Client()
    may_all = {"is_staff": True, "is_superuser": True}
    operator, _ = get_user_model().objects.get_or_create(username="operator", defaults=may_all)
    client.force_login(operator)
    client.get(reverse("admin:index"))
    return {name: _timed(client, address, turns) for name, address in _addresses()}


def _timed(client: Client, address: str, turns: int) -> dict[str, Any]:
    statements: list[str] = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        response = client.get(address)
    if response.status_code != 200:
        raise AssertionError(f"{address} was answered with {response.status_code}")
    took = []
    for _ in range(turns):
        start = time.perf_counter()
        client.get(address)
        took.append(1000 * (time.perf_counter() - start))
    listed = response.content.count(b'name="_selected_action"')
    return {"milliseconds": sorted(took), "statements": len(statements), "listed": listed}


def _addresses() -> Iterator[tuple[str, str]]:
    jobs = reverse("admin:django_reliable_jobs_job_changelist")
    for name, query in _queries():
        yield f"list, {name}", f"{jobs}?{query}"
    dead = Job.objects.filter(status="DEAD", finished_at__isnull=False).order_by("-finished_at")[0].pk
    last = Job.objects.order_by("-pk")[0].pk
    for name, of in (("that died", dead), ("that waits", last)):
        yield f"page of a job {name}", reverse("admin:django_reliable_jobs_job_change", args=[of])
    often, rarely = (Schedule.objects.get(name=SCHEDULES[place]) for place in (0, -1))
    for name, schedule in (("that runs often", often), ("that hardly runs", rarely)):
        yield (
            f"history of a schedule {name}",
            reverse("admin:django_reliable_jobs_schedule_runs", args=[schedule.pk]),
        )
    yield "overview", reverse("admin:app_list", args=["django_reliable_jobs"])
    yield "dead letters", reverse("admin:django_reliable_jobs_dead")
    for model in ("schedule", "queue", "worker", "alert", "limit"):
        yield f"list of each {model}", reverse(f"admin:django_reliable_jobs_{model}_changelist")


def _queries() -> Iterator[tuple[str, str]]:
    first, last = (Job.objects.order_by(order)[0].pk for order in ("pk", "-pk"))
    schedules = list(Schedule.objects.filter(name__in=SCHEDULES).order_by("pk").values_list("pk", flat=True))
    worker = Worker.objects.order_by("pk")[0].pk
    yield "all", ""
    yield "a page in the middle", f"before={(first + last) // 2}"
    for status in Job.Status.values:
        yield status, f"status={status}"
    for name in ("queue=mail", "queue=reports", "queue=rare", "queue=none"):
        yield name, name
    for task in ("mail", "report.daily", "retired", "yearly", "none"):
        yield f"task={task}", f"task=shop.{task}"
    yield "a task that only waits", "task=benchmark.noop"
    yield "schedule that runs often", f"schedule={schedules[0]}"
    yield "schedule that hardly runs", f"schedule={schedules[-1]}"
    yield "schedule that there is not", f"schedule={schedules[-1] + 1}"
    for period in ("1h", "24h", "7d", "30d"):
        yield f"period={period}", f"period={period}"
    yield "worker", f"worker={worker}"
    for period in ("1h", "24h", "7d"):
        yield f"worker and period={period}", f"worker={worker}&period={period}"
        yield f"a worker that there is not and period={period}", f"worker=1&period={period}"
    for status in ("DEAD", "CANCELLED", "SUCCEEDED", "READY"):
        yield f"{status} of a task", f"status={status}&task=shop.mail"
        yield f"{status} of a rare task", f"status={status}&task=shop.yearly"
    yield "dead letters of an error", "status=DEAD&task=shop.mail&error=OSError"
    yield "dead letters of an error that there is not", "status=DEAD&task=shop.mail&error=KeyError"
    yield "task and period", "task=shop.retired&period=24h"
    yield "an id", f"q={(first + last) // 2}"
    yield "an id that there is not", f"q={10 * last}"
    for name, text in (("mail", "mail"), ("yearly", "yearly"), ("shop.", "shop."), ("none", "none")):
        yield f"search for {name}", f"q={text}"
    yield "a unique key", f"q={RARE_KEY}"
    yield "a unique key that there is not", "q=order-43"
    yield "next page of a task", f"task=shop.mail&before={(first + last) // 2}"
    yield "next page of dead letters", f"status=DEAD&before={(first + last) // 2}"
    yield "last page", f"before={first + 50}"
