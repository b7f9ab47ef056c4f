"""What the statements of limited jobs read, beside 100,000 of them: a few blocks of the right indexes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs import clock
from django_reliable_jobs.engine import claim, limited, limits, lines
from django_reliable_jobs.engine.claim import Arm
from django_reliable_jobs.engine.exchange import EXCHANGE
from django_reliable_jobs.engine.lifecycle import succeed_parameters
from tests import limited_tasks, tasks
from tests.limited_claims import find, find_and_take
from tests.states import a_worker

pytestmark = [pytest.mark.django_db, pytest.mark.heavy]

JOB = "django_reliable_jobs_job"


def plan_of(statement: str, parameters: dict[str, Any]) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
        plan = cursor.fetchone()[0]
    root = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    assert isinstance(root, dict)
    return root


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def blocks(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def assert_no_table_is_scanned(plan: dict[str, Any]) -> None:
    scanned = [node for node in nodes(plan) if node["Node Type"] == "Seq Scan" and node["Relation Name"] == JOB]
    assert not scanned


def fill(customers: int, jobs: int, *, analyze: bool = True) -> None:
    limits.declare("default")
    calls = [{"customer_id": number % customers} for number in range(jobs)]
    limited_tasks.per_customer.enqueue_many(calls)
    if analyze:
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE {JOB}")


def plan_of_scan() -> dict[str, Any]:
    return plan_of(
        lines.FIND,
        {
            "moment": clock.moment(),
            "queues": ["default"],
            "cursors": [""],
            "wanted": lines.LINES_WANTED,
            "most": lines.LINES_SEEN,
            "paced": True,
        },
    )


def plan_of_claim() -> dict[str, Any]:
    found = find().lines[:16]
    return plan_of(
        limited.CLAIM_LINES,
        {
            "moment": clock.moment(),
            "worker_id": a_worker(),
            "queues": [line.queue_name for line in found],
            "lines": [line.text for line in found],
            "concurrency_keys": [line.concurrency_key for line in found],
            "rate_keys": [line.rate_key for line in found],
            "serial_keys": [line.serial_key for line in found],
            "capped": [line.is_capped for line in found],
            "limit": 8,
            "free": 8,
            "alone": False,
            "paced": True,
        },
    )


def plan_of_exchange() -> dict[str, Any]:
    parameters = claim.claim_parameters(a_worker(), [Arm("default", 0, 8)], limit=8, free=8, alone=True)
    return plan_of(EXCHANGE, succeed_parameters([]) | parameters)


def plan_of_look() -> dict[str, Any]:
    return plan_of(claim.LOOK, {"moment": clock.moment()})


@pytest.mark.parametrize("analyze", [True, False], ids=["analyzed", "not analyzed"])
def test_the_scan_and_the_claim_read_a_few_blocks_of_indexes(analyze: bool) -> None:
    fill(10_000, 100_000, analyze=analyze)
    for plan in (plan_of_scan(), plan_of_claim()):
        assert_no_table_is_scanned(plan)
        assert blocks(plan) < 3000
    assert any(node.get("Index Name") == "reliable_job_limited" for node in nodes(plan_of_scan()))
    assert any(node.get("Index Name") == "reliable_job_holds_place" for node in nodes(plan_of_claim()))


def test_a_hundred_times_as_many_keys_and_jobs_cost_no_more_to_claim_from() -> None:
    fill(100, 1000)
    few = blocks(plan_of_scan()), blocks(plan_of_claim())
    fill(10_000, 100_000)
    many = blocks(plan_of_scan()), blocks(plan_of_claim())
    assert many[0] < 2 * few[0]
    assert many[1] < 2 * few[1]


def test_the_scan_past_blocked_lines_ends() -> None:
    fill(10_000, 20_000)
    assert len(find_and_take(a_worker(), 9000)) == lines.LINES_WANTED
    for _ in range(11):
        find_and_take(a_worker(), 9000)
    plan = plan_of_scan()
    seen = max(node["Actual Rows"] for node in nodes(plan) if node["Node Type"] == "Recursive Union")
    assert seen <= lines.LINES_SEEN
    assert blocks(plan) < 30 * lines.LINES_SEEN


def test_ordinary_jobs_cost_the_same_to_find_and_claim_beside_a_hundred_thousand_limited_ones() -> None:
    tasks.nothing.enqueue_many([{}] * 1000)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {JOB}")
    alone = blocks(plan_of_look()), blocks(plan_of_exchange())
    fill(10_000, 100_000)
    beside = blocks(plan_of_look()), blocks(plan_of_exchange())
    assert beside[0] <= alone[0] + 20
    assert beside[1] <= alone[1] * 1.2 + 20
    assert_no_table_is_scanned(plan_of_look())
    assert_no_table_is_scanned(plan_of_exchange())
