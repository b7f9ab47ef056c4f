"""No page of the admin reads the whole table: the plans of its statements, and with a million jobs if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_reliable_jobs.admin import job_paging
from django_reliable_jobs.engine import inspection, rare_jobs
from django_reliable_jobs.engine.rare_jobs import Wanted
from django_reliable_jobs.models import Job
from tests.edges.test_admin import PAGES
from tests.edges.test_admin_job_list import JOBS
from tests.engine.plans import JIT_ABOVE, watched
from tests.schedules import a_schedule

# Of a hundred jobs, 97 have succeeded, one is dead, one cancelled, one ready; the oldest are in a rare queue.
CROWD = """
INSERT INTO django_reliable_jobs_job
       (task, queue_name, status, created_at, run_after, finished_at, worker_id, schedule_id)
SELECT CASE WHEN number <= 20 THEN 'rare.task' ELSE 'tests.tasks.nothing' END,
       CASE WHEN number <= 20 THEN 'rare' ELSE 'default' END, status, moment, moment,
       CASE WHEN status <> 'READY' THEN moment END, mod(number, 7), CASE WHEN mod(number, 1000) = 5 THEN 1 END
  FROM generate_series(1, %(size)s) AS given(number),
       LATERAL (SELECT now() - make_interval(secs => (%(size)s - number) * 3) AS moment,
                       CASE mod(number, 100) WHEN 1 THEN 'DEAD' WHEN 2 THEN 'CANCELLED' WHEN 3 THEN 'READY'
                            ELSE 'SUCCEEDED' END AS status) made
"""


@pytest.fixture(scope="module", params=[20_000, pytest.param(1_000_000, marks=pytest.mark.heavy)])
def crowd(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: pytest.FixtureRequest
) -> Iterator[int]:
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(CROWD, {"size": request.param})
        # All of them: what tests before left in the small ones would count in the plans.
        tables = [each._meta.db_table for each in apps.get_app_config("django_reliable_jobs").get_models()]
        cursor.execute(f"VACUUM ANALYZE {', '.join(tables)}")
    yield request.param
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_reliable_jobs_job CASCADE")
        cursor.execute("VACUUM ANALYZE django_reliable_jobs_job")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "query",
    [
        *(
            "",
            "?before=5000",
            "?status=SUCCEEDED",
            "?status=DEAD",
            "?status=RUNNING",
            "?status=WAITING",
            "?queue=default",
        ),
        *("?queue=rare", "?queue=none", "?task=rare.task", "?task=none", "?status=DEAD&task=none", "?schedule=1"),
        *(
            "?schedule=999",
            "?period=1h",
            "?period=30d",
            "?worker=3",
            "?worker=3&period=24h",
            "?q=77",
            "?q=rare",
            "?q=none",
        ),
        "?q=key=x",
    ],
)
def test_no_page_reads_the_whole_table(
    admin_client: Client, crowd: int, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a small crowd a small window, as the planner reads small tables whole.
    most = min(job_paging.LOOKED_AT, crowd // 20)
    monkeypatch.setattr(job_paging, "LOOKED_AT", most)
    monkeypatch.setattr(rare_jobs, "FEW", min(rare_jobs.FEW, most))
    with watched() as plans:
        assert admin_client.get(JOBS + query).status_code == 200
    assert plans.roots
    # A page of what one job in a hundred is may be found among the newest.
    assert plans.faults(most + crowd // 50 + 6000) == []
    assert plans.highest_cost() < JIT_ABOVE


@pytest.mark.django_db
@pytest.mark.parametrize(
    "page", ["", "job/dead/", "queue/", "worker/", "schedule/", "schedule/{schedule}/runs/", "job/{job}/change/"]
)
def test_no_other_page_does(admin_client: Client, crowd: int, page: str) -> None:
    first, age = Job.objects.order_by("pk")[9].pk, timezone.now() - timedelta(minutes=5)
    schedule = a_schedule()
    Job.objects.filter(pk__in=range(first, first + 50)).update(schedule_id=schedule.pk, slot=age)
    path = page.format(schedule=schedule.pk, job=first)
    with watched() as plans:
        assert admin_client.get(f"{PAGES}{path}").status_code == 200
    assert plans.roots, "nothing was asked of the jobs"
    # At most the dead and the ready ones, and what is as near as they are.
    assert plans.faults(crowd // 50 + 6000) == []
    assert plans.highest_cost() < JIT_ABOVE


KEPT = {
    "of a task": lambda: rare_jobs.find("default", Wanted(task="rare.task")),
    "of a common task": lambda: rare_jobs.find("default", Wanted(task="tests.tasks.nothing")),
    "of no task": lambda: rare_jobs.find("default", Wanted(part="none")),
    "of a schedule": lambda: rare_jobs.find("default", Wanted(schedule_id=1)),
    "the latest end": lambda: rare_jobs.latest_end("default", Wanted(task="tests.tasks.nothing")),
    "queues": lambda: inspection.queues("default", most=1000),
    "dead letters": lambda: inspection.dead_by_task("default", most=1000),
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", KEPT)
def test_a_plan_that_is_kept_for_any_parameters_is_as_good(
    crowd: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rare_jobs, "FEW", min(rare_jobs.FEW, crowd // 20))
    with watched(prepared=True) as plans:
        KEPT[name]()
    assert plans.roots, "nothing was executed"
    assert plans.faults(crowd // 50 + 6000) == []
    assert plans.highest_cost() < JIT_ABOVE
