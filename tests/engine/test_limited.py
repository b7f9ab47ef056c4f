"""Which limited jobs a claim takes, in what order, and what it leaves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from django_reliable_jobs.engine import claim as claiming
from django_reliable_jobs.engine import limits, lines, queues
from django_reliable_jobs.models import Job, Queue
from tests import limited_tasks, tasks
from tests.claims import SUCCESS, claim, end
from tests.limited_claims import find, find_and_take, take, take_capped
from tests.recorded import run_jobs
from tests.states import a_worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def declared() -> None:
    limits.declare("default")


def customers(jobs: list[Any]) -> list[int]:
    return [int(Job.objects.get(pk=job.id).concurrency_key.rpartition("=")[2]) for job in jobs]


def test_a_job_carries_the_keys_of_its_limits_and_is_found_by_them_only() -> None:
    job = limited_tasks.call_api.enqueue(7)
    job.refresh_from_db()
    assert job.concurrency_key == "tests.limited_tasks.call_api:customer_id=7"
    assert (job.rate_key, job.serial_key) == ("api", None)
    assert claiming.look("default") == claiming.Sight([], None, ["default"])
    assert claim(a_worker()) == []
    assert [claimed.id for claimed in find_and_take(a_worker())] == [job.pk]


def test_jobs_enqueued_together_each_carry_their_key() -> None:
    made = limited_tasks.call_api.enqueue_many([{"customer_id": number} for number in (2, 1, 2)])
    keys = [f"tests.limited_tasks.call_api:customer_id={number}" for number in (2, 1, 2)]
    assert [job.concurrency_key for job in made] == keys
    assert list(Job.objects.order_by("id").values_list("concurrency_key", "rate_key")) == [(key, "api") for key in keys]


def test_unique_jobs_enqueued_together_each_carry_their_key() -> None:
    limited_tasks.for_customer.enqueue_many([{"key": "a", "customer_id": 1}, {"key": "b", "customer_id": 2}])
    ends = sorted(Job.objects.values_list("concurrency_key", flat=True))
    assert [key.rpartition("=")[2] for key in ends] == ["1", "2"]
    limited_tasks.for_customer.enqueue_many([{"key": "a", "customer_id": 3}])
    assert sorted(Job.objects.values_list("concurrency_key", flat=True))[1].endswith("=3")


def test_a_line_is_claimed_by_priority_then_due_time_then_id() -> None:
    limits.override("default", "concurrency", "tests.limited_tasks.one_at_a_time", 100)
    now, jobs = timezone.now(), {}
    for number, place in enumerate([(p, -m, n) for p in (0, 100, -100) for m in (1, 3, 2) for n in (0, 1)]):
        run_after = now + timedelta(minutes=place[1])
        jobs[(-place[0], place[1], number)] = (
            limited_tasks.one_at_a_time.using(priority=place[0], run_after=run_after).enqueue().pk
        )
    taken = [job.id for _ in range(6) for job in find_and_take(a_worker(), 3)]
    assert taken == [jobs[place] for place in sorted(jobs)]


def test_lines_take_turns_before_one_gets_a_second_place() -> None:
    limits.override("default", "concurrency", "tests.limited_tasks.per_customer", 3)
    limited_tasks.per_customer.enqueue_many([{"customer_id": number} for number in (1, 1, 1, 1, 2, 2, 3)])
    assert customers(find_and_take(a_worker(), 5)) == [1, 2, 3, 1, 2]
    assert customers(find_and_take(a_worker(), 5)) == [1]


def test_the_higher_priority_goes_first_among_lines() -> None:
    limited_tasks.per_customer.enqueue_many([{"customer_id": number} for number in range(5)])
    limited_tasks.per_customer.using(priority=1).enqueue(9)
    assert customers(find_and_take(a_worker(), 2)) == [9, 0]


def test_a_job_that_counts_for_several_limits_needs_all_of_them() -> None:
    limited_tasks.call_api.enqueue_many([{"customer_id": number} for number in (1, 1, 2, 3, 4)])
    first = find_and_take(a_worker())
    assert customers(first) == [1, 2, 3]  # the burst of the rate
    assert find().lines == []
    limits.override("default", "rate", "api", 1000, 1, 1000)
    assert customers(find_and_take(a_worker())) == [4]
    assert end(first[0], SUCCESS)
    assert customers(find_and_take(a_worker())) == [1]


def test_jobs_that_share_one_key_and_differ_in_another_never_exceed_it() -> None:
    limited_tasks.call_api.enqueue_many([{"customer_id": number} for number in range(20)])
    limits.override("default", "rate", "api", 100, 1, 7)
    assert len(find_and_take(a_worker(), 20)) == 7


def test_a_serial_key_lets_one_run_and_the_limits_of_the_task_count_beside_it() -> None:
    for number in range(3):
        job = limited_tasks.crm_read.enqueue(str(number))
        Job.objects.filter(pk=job.pk).update(serial_key="schedule 1")
    limited_tasks.crm_read.enqueue_many([{}] * 3)
    taken = find_and_take(a_worker())
    assert len(taken) == 2  # the limit of `crm`
    assert Job.objects.filter(status="RUNNING", serial_key="schedule 1").count() <= 1
    for job in taken:
        end(job, SUCCESS)
    assert len(find_and_take(a_worker())) == 2


def test_a_paused_queue_is_left_alone() -> None:
    limited_tasks.one_at_a_time.enqueue()
    seen = find().lines
    queues.pause("default", ["default"])
    assert claiming.look("default").limited == []
    assert find().lines == []
    assert take(a_worker(), seen) == []
    queues.resume("default", ["default"])
    assert len(find_and_take(a_worker())) == 1


def test_only_the_queues_asked_for_are_looked_at() -> None:
    limited_tasks.crm_export.enqueue()
    assert find("default").lines == []
    assert find("default").is_hopeless
    assert [line.queue_name for line in find("default", "exports").lines] == ["exports"]
    assert claiming.look("default").limited == ["exports"]


def test_scheduled_jobs_wait_outside_until_they_are_due() -> None:
    limited_tasks.one_at_a_time.using(run_after=timedelta(hours=1)).enqueue()
    assert claiming.look("default").limited == []
    assert find().lines == []


def test_a_claim_writes_what_every_claim_writes() -> None:
    limited_tasks.rebuild.enqueue("key")
    worker_id = a_worker()
    [claimed] = find_and_take(worker_id)
    job = Job.objects.get()
    assert (job.status, job.attempt, job.claims, job.worker_id) == ("RUNNING", 1, 1, worker_id)
    assert (job.token, job.unique_hash) == (claimed.token, None)
    assert job.started_at == job.first_started_at is not None
    assert (claimed.task, claimed.args, claimed.kwargs) == (job.task, '["key"]', "{}")
    assert not claimed.is_late


def test_a_job_past_its_expiry_is_claimed_to_be_cancelled() -> None:
    limited_tasks.one_at_a_time.enqueue()
    Job.objects.update(expires_at=Now() - timedelta(seconds=1))
    assert find_and_take(a_worker())[0].is_late


def test_a_job_that_may_start_once_is_taken_for_a_free_thread_only() -> None:
    limited_tasks.per_customer.enqueue_many([{"customer_id": number} for number in range(3)])
    limited_tasks.once_and_alone.enqueue()
    found = find().lines
    assert found[0].concurrency_key == "tests.limited_tasks.once_and_alone"
    assert take(a_worker(), found, 3, free=0) == []
    assert len(take(a_worker(), found, 3, free=1)) == 3


def test_a_suspect_is_taken_alone_and_nothing_of_its_line_overtakes_it() -> None:
    limits.override("default", "concurrency", "tests.limited_tasks.per_customer", 5)
    jobs = limited_tasks.per_customer.enqueue_many([{"customer_id": number} for number in (1, 1, 1, 2)])
    Job.objects.filter(pk=jobs[0].pk).update(losses=1)
    found = find().lines
    assert [line.is_suspect for line in found] == [True, False]
    assert [job.id for job in take(a_worker(), found, alone=False)] == [jobs[3].pk]
    assert [job.id for job in take(a_worker(), found, alone=True)] == [jobs[0].pk]
    assert len(find_and_take(a_worker(), alone=False)) == 2


def test_a_suspect_behind_others_ends_the_batch_before_it() -> None:
    limits.override("default", "concurrency", "tests.limited_tasks.per_customer", 5)
    jobs = limited_tasks.per_customer.enqueue_many([{"customer_id": 1}] * 4)
    Job.objects.filter(pk=jobs[2].pk).update(losses=1)
    assert [job.id for job in find_and_take(a_worker(), alone=True)] == [jobs[0].pk, jobs[1].pk]


def test_a_queue_with_a_limit_leaves_the_ordinary_claim() -> None:
    Queue.objects.create(name="default", concurrency=2)
    jobs = tasks.nothing.enqueue_many([{}] * 5)
    [head] = claiming.look("default").heads
    assert head.is_capped
    assert claim(a_worker(), 5) == []
    assert claiming.claim_passed_over("default", a_worker(), jobs[0].pk, patience=1) is None
    assert take_capped(a_worker()) == [job.pk for job in jobs[:2]]
    assert take_capped(a_worker()) == []


def test_a_queue_with_a_limit_is_claimed_by_priority() -> None:
    Queue.objects.create(name="default", concurrency=3)
    low = tasks.nothing.enqueue_many([{}] * 3)
    high = tasks.nothing.using(priority=5).enqueue_many([{}] * 2)
    assert take_capped(a_worker(), priorities=[5, 0]) == [high[0].pk, high[1].pk, low[0].pk]


def test_the_limit_of_a_queue_counts_limited_jobs_too() -> None:
    Queue.objects.create(name="default", concurrency=2)
    limited_tasks.per_customer.enqueue_many([{"customer_id": number} for number in range(5)])
    tasks.nothing.enqueue_many([{}] * 5)
    assert len(take_capped(a_worker(), limit=1)) == 1
    assert len(find_and_take(a_worker())) == 1
    assert find().lines == [] and not find().is_hopeless
    assert find_and_take(a_worker()) == take_capped(a_worker()) == []


def test_a_queue_limited_to_nothing_is_as_good_as_paused() -> None:
    Queue.objects.create(name="default", concurrency=0)
    tasks.nothing.enqueue()
    limited_tasks.one_at_a_time.enqueue()
    assert claiming.look("default") == claiming.Sight([], None, [])
    assert run_jobs() == []


def test_a_scan_stops_after_enough_lines_and_goes_on_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINES_WANTED", 3)
    limited_tasks.per_customer.enqueue_many([{"customer_id": number} for number in range(8)])
    cursor, seen = "", []
    for _ in range(4):
        finding = lines.find_lines("default", {"default": cursor})
        seen.append([int((line.concurrency_key or "").rpartition("=")[2]) for line in finding.lines])
        cursor = finding.last.get("default", "")
    assert seen == [[0, 1, 2], [3, 4, 5], [6, 7], [0, 1, 2]]


def test_a_scan_goes_past_so_many_blocked_lines_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINES_SEEN", 5)
    limited_tasks.per_customer.enqueue_many([{"customer_id": number} for number in range(7)] * 2)
    assert len(find_and_take(a_worker(), 5)) == 5
    first = find()
    assert (first.lines, first.is_hopeless) == ([], False)
    second = lines.find_lines("default", first.last)
    assert len(second.lines) == 2
    assert second.last == {}


def test_run_jobs_runs_limited_jobs_too_and_waits_for_no_rate() -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 10)
    limited_tasks.one_at_a_time.enqueue_many([{}] * 3)
    limited_tasks.crm_export.enqueue("exported")
    tasks.nothing.enqueue()
    Queue.objects.create(name="exports", concurrency=1)
    tasks.nothing.using(queue_name="exports").enqueue()
    assert len(run_jobs()) == 16
    assert not Job.objects.exclude(status="SUCCEEDED").exists()


def test_the_job_of_a_dead_one_counts_for_the_limits_of_its_task() -> None:
    limited_tasks.dies.enqueue()
    run_jobs()
    job = Job.objects.get(task="tests.limited_tasks.bury_alone")
    assert job.concurrency_key == "tests.limited_tasks.bury_alone"
