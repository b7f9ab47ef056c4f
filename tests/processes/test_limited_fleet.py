"""A fleet of workers under limits, killed and stopped meanwhile: what holds at every instant."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from datetime import datetime

import pytest
from django.db.models import Max

from django_reliable_jobs.models import Job, Worker
from tests import limited_tasks
from tests.actors import wait_for
from tests.limit_guard import witnessed
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

SHORT_LEASE = {"LEASE_SECONDS": 2}


def succeeded() -> int:
    return Job.objects.filter(status="SUCCEEDED").count()


def starts_so_far() -> list[datetime]:
    started = Job.objects.exclude(started_at=None).order_by("started_at")
    return list(started.values_list("started_at", flat=True))


def starts_over(seconds: float) -> list[datetime]:
    """All starts so far, once they reach over so many seconds; nothing before."""
    starts = starts_so_far()
    return starts if starts and (starts[-1] - starts[0]).total_seconds() > seconds else []


def in_window(starts: Sequence[datetime], seconds: float) -> int:
    """The most starts in any window of this length that begins with one."""
    most = first = 0
    for last, start in enumerate(starts):
        while (start - starts[first]).total_seconds() >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.heavy
def test_killed_and_stopped_workers_never_bring_a_limit_of_three_to_four(start_worker: StartWorker) -> None:
    dice = random.Random(1)
    calls = [{"seconds": round(dice.uniform(0, 0.3), 3)} for _ in range(400)]
    limited_tasks.three_at_a_time.enqueue_many(calls)
    limited_tasks.per_customer.enqueue_many([{"customer_id": n % 20, **call} for n, call in enumerate(calls)])

    def start() -> WorkerProcess:
        return start_worker("--threads", "8", settings=SHORT_LEASE, ready=False)

    with witnessed("concurrency_key") as witness:
        fleet = [start() for _ in range(4)]
        for _ in range(12):
            time.sleep(dice.uniform(0.5, 1.5))
            number = dice.randrange(4)
            if dice.random() < 0.5:
                fleet[number].kill()
                fleet[number] = start()
            else:
                fleet[number].send(signal.SIGSTOP)
                time.sleep(dice.uniform(0.1, 4))
                fleet[number].send(signal.SIGCONT)
        wait_for(lambda: succeeded() == 800, what="all jobs", timeout=180)
        assert witness.most_running("tests.limited_tasks.three_at_a_time") == 3
        assert witness.most_running("tests.limited_tasks.per_customer:") == 1
        assert witness.starts() >= 800
    assert Job.objects.aggregate(most=Max("claims"))["most"] > 1, "no worker was killed in the middle of a job"


@pytest.mark.heavy
def test_ten_a_second_over_twenty_seconds_from_four_processes(start_worker: StartWorker) -> None:
    fleet = [start_worker("--threads", "8") for _ in range(4)]
    wait_for(lambda: Worker.objects.filter(is_idle=True).count() == len(fleet), what="the fleet to be idle")
    limited_tasks.ten_a_second.enqueue_many([{}] * 1000)
    starts = wait_for(lambda: starts_over(20), what="20 seconds of starts", timeout=60)
    for seconds in (0.1, 0.5, 1, 2, 5, 10):
        assert in_window(starts, seconds) <= 10 * seconds + 10, seconds
    in_twenty = sum((start - starts[0]).total_seconds() < 20 for start in starts)
    assert 0.95 * (10 * 20 + 10) <= in_twenty <= 10 * 20 + 10
    spread = [sum(int((start - starts[0]).total_seconds()) == second for start in starts) for second in range(2, 20)]
    assert min(spread) >= 8 and max(spread) <= 12, "bunched"


@pytest.mark.heavy
def test_a_rate_holds_over_crashes(start_worker: StartWorker) -> None:
    limited_tasks.ten_a_second.enqueue_many([{}] * 80)
    fleet = [start_worker("--threads", "8", settings=SHORT_LEASE) for _ in range(2)]
    for _ in range(3):
        time.sleep(1)
        fleet.pop(0).kill()
        fleet.append(start_worker("--threads", "8", settings=SHORT_LEASE))
    wait_for(lambda: succeeded() == 80, what="all jobs")
    starts = starts_so_far()
    assert in_window(starts, 1) <= 20
    assert (starts[-1] - starts[0]).total_seconds() >= 6.5


@pytest.mark.heavy
def test_a_hundred_customers_with_five_jobs_do_not_wait_for_one_with_fifty_thousand(start_worker: StartWorker) -> None:
    for _ in range(10):
        limited_tasks.per_customer.enqueue_many([{"customer_id": 0}] * 5000)
    limited_tasks.per_customer.enqueue_many([{"customer_id": 1 + n % 100, "seconds": 0.01} for n in range(500)])
    small = Job.objects.filter(status="SUCCEEDED").exclude(concurrency_key__endswith=":customer_id=0")
    started = time.monotonic()
    for _ in range(2):
        start_worker("--threads", "4")
    wait_for(lambda: small.count() == 500, what="the small customers", timeout=60)
    assert time.monotonic() - started < 45
    big = Job.objects.filter(concurrency_key__endswith=":customer_id=0")
    done = big.filter(status="SUCCEEDED").count()
    assert 5 <= done < 25_000, "the big one goes on meanwhile"
