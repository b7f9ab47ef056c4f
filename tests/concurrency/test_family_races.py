"""The ends of children and the wait of their parent, interleaved by hand: it goes on once, and not too early."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from django_reliable_jobs import Batch
from django_reliable_jobs.engine import claim, endings_of_jobs, families, lifecycle, waits
from django_reliable_jobs.engine.children import ChildPort
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.models import Batch as BatchRow
from django_reliable_jobs.models import Job, Wait
from tests import tasks
from tests.actors import on_stage, wait_until_blocked
from tests.claims import claim_one_as, end
from tests.step_tasks import child, follows_a_batch

pytestmark = pytest.mark.django_db(transaction=True)

LOOK = waits.wake_these
WAITING = Outcome(status="WAITING", delay=1000.0, uses_attempt=False, has_begun=True)
SUCCESS = Outcome(status="SUCCEEDED")


@pytest.fixture(autouse=True)
def looks_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the look that follows the end of an attempt that waits: the test does it."""
    monkeypatch.setattr(waits, "wake_these", lambda using, job_ids: 0)


class Family:
    """A claimed parent with two claimed children, each in a batch of its own, or both in one."""

    def __init__(self, *, is_one_batch: bool) -> None:
        tasks.nothing.enqueue()
        self.parent = claim_one_as(1)
        port = self.port
        names = ["a", "b"]
        if is_one_batch:
            kept = [port.start_children("children", _placement(), [{"name": name} for name in names])]
        else:
            kept = [port.start_children(f"child {name}", _placement(), ((name,), {})) for name in names]
        self.batches = [each["batch"] for each in kept]
        self.children = [claim_one_as(2 + number) for number in range(2)]
        self.is_over = False

    @property
    def port(self) -> ChildPort:
        job = self.parent
        return ChildPort("default", job_id=job.id, token=job.token, run=job.run, task=job.task)

    def asks(self) -> None:
        self.is_over = self.port.wait_for_batches("children", self.batches, None) is not None

    def waits(self) -> None:
        assert self.is_over or end(self.parent, WAITING)

    def looks(self) -> None:
        if not self.is_over:
            LOOK("default", [self.parent.id])

    @property
    def status(self) -> str:
        return str(Job.objects.get(pk=self.parent.id).status)


def _placement() -> Any:
    from django_reliable_jobs.placement import Placement

    return Placement(task=child)


def succeed(job: ClaimedJob) -> set[int]:
    return lifecycle.end("default", [lifecycle.Ending(job.id, job.token, SUCCESS)], worker="test:0")


def look_as_worker() -> int:
    return waits.wake("default") if claim.look("default").has_news else 0


STEPS = ("asks", "waits", "looks", "first ends", "second ends")
ORDERS = [order for order in permutations(STEPS) if order.index("asks") < order.index("waits") < order.index("looks")]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(order))
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_the_parent_goes_on_once_whatever_the_order(order: tuple[str, ...], is_one_batch: bool) -> None:
    family = Family(is_one_batch=is_one_batch)
    acts: dict[str, Callable[[], Any]] = {
        "asks": family.asks,
        "waits": family.waits,
        "looks": family.looks,
        "first ends": lambda: succeed(family.children[0]),
        "second ends": lambda: succeed(family.children[1]),
    }
    ended = 0
    for step in order:
        acts[step]()
        ended += step.endswith("ends")
        look_as_worker()
        assert ended == 2 or family.status in ("RUNNING", "WAITING"), f"it went on too early, after {step}"
    assert family.status == ("RUNNING" if family.is_over else "READY")
    assert look_as_worker() == 0


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_of_the_last_two_that_end_at_once_the_later_wakes_the_parent(is_one_batch: bool) -> None:
    family = Family(is_one_batch=is_one_batch)
    family.asks()
    family.waits()
    with on_stage("first", "second", "worker") as [first, second, worker]:
        first.begins()
        first.does(succeed, family.children[0])
        late = second.starts(succeed, family.children[1])
        wait_until_blocked(second)  # at the row of the batch, or of the parent's wait
        assert worker.does(look_as_worker) == 0
        first.commits()
        late.result(timeout=60)
        assert worker.does(look_as_worker) == 1
        assert worker.does(look_as_worker) == 0
    assert family.status == "READY"
    assert Wait.objects.get().is_satisfied


def test_the_first_of_two_that_rolls_back_has_not_ended() -> None:
    family = Family(is_one_batch=True)
    family.asks()
    family.waits()
    with on_stage("first", "second") as [first, second]:
        first.begins()
        first.does(succeed, family.children[0])
        late = second.starts(succeed, family.children[1])
        wait_until_blocked(second)
        first.rolls_back()
        late.result(timeout=60)
    assert look_as_worker() == 0
    assert family.status == "WAITING"
    succeed(family.children[0])
    assert look_as_worker() == 1


def test_what_follows_a_batch_is_enqueued_once_when_its_last_two_end_at_once() -> None:
    batch = Batch(on_finish=follows_a_batch)
    batch.enqueue_many(child, [{"name": "a"}, {"name": "b"}])
    jobs = [claim_one_as(1), claim_one_as(2)]
    with on_stage("first", "second") as [first, second]:
        first.begins()
        first.does(succeed, jobs[0])
        late = second.starts(succeed, jobs[1])
        wait_until_blocked(second)
        assert not Job.objects.filter(task=follows_a_batch.name).exists()
        first.commits()
        late.result(timeout=60)
    assert Job.objects.filter(task=follows_a_batch.name).count() == 1
    assert BatchRow.objects.get().finished_at is not None


def test_a_job_that_joins_while_the_last_one_ends_keeps_the_batch_open() -> None:
    batch = Batch(on_finish=follows_a_batch)
    batch.enqueue(child, "a")
    job = claim_one_as(1)
    with on_stage("producer", "ender") as [producer, ender]:
        producer.begins()
        producer.does(batch.enqueue, child, "b")
        late = ender.starts(succeed, job)
        wait_until_blocked(ender)
        producer.commits()
        late.result(timeout=60)
    assert BatchRow.objects.get().finished_at is None
    succeed(claim_one_as(2))
    assert BatchRow.objects.get().finished_at is not None


def test_a_sweep_beside_the_last_end_finishes_the_batch_once() -> None:
    batch = Batch(on_finish=follows_a_batch)
    batch.enqueue(child, "a")
    job = claim_one_as(1)
    with on_stage("ender", "sweeper") as [ender, sweeper]:
        ender.begins()
        ender.does(succeed, job)
        sweeper.does(endings_of_jobs.finish_missed, "default")
        ender.commits()
        sweeper.does(endings_of_jobs.finish_missed, "default")
    assert Job.objects.filter(task=follows_a_batch.name).count() == 1
    assert families.find_missed("default") == []
