"""Emitters, waiters and who wakes them, interleaved by hand: no wake-up is lost, none comes twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest

from django_reliable_jobs import emit_event
from django_reliable_jobs.engine import claim, lifecycle, maintenance, waits
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.lifecycle import Outcome
from django_reliable_jobs.engine.steps import StepPort
from django_reliable_jobs.models import Event, Job, Wait
from tests import tasks
from tests.actors import Actor, on_stage, wait_until_blocked
from tests.claims import claim_one_as, end

pytestmark = pytest.mark.django_db(transaction=True)

EMITTER = ("emits", "commits")
WAITER = ("asks", "waits", "looks")
ORDERS = [
    [EMITTER[places.index(place)] if place in places else None for place in range(5)]
    for places in combinations(range(5), 2)
]
WAITING = Outcome(status="WAITING", delay=1000.0, uses_attempt=False, has_begun=True)


def step_port(job: ClaimedJob) -> StepPort:
    return StepPort("default", job_id=job.id, token=job.token, run=job.run, task=job.task)


@pytest.fixture
def looks_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the look that follows the end of a waiter's attempt: the test does it, at a moment of its choice."""
    monkeypatch.setattr(waits, "wake_these", lambda using, job_ids: 0)


LOOK = waits.wake_these


class Waiter:
    """A job that waits, step by step. Each step is a transaction of its own, as in a worker."""

    def __init__(self, name: str) -> None:
        tasks.nothing.enqueue()
        self.job = claim_one_as(1)
        self.event = name
        self.has_payload = False

    def asks(self) -> int:
        stored, _ = step_port(self.job).wait_for_event(self.event, self.event, None)
        self.has_payload = stored.state == "done"
        return 0

    def waits(self) -> int:
        if not self.has_payload:
            assert end(self.job, WAITING)
        return 0

    def looks(self) -> int:
        return 0 if self.has_payload else LOOK("default", [self.job.id])

    @property
    def status(self) -> str:
        return str(Job.objects.get(pk=self.job.id).status)


def look_as_worker() -> int:
    return waits.wake("default") if claim.look("default").has_news else 0


def order_of(steps: list[str | None]) -> Iterator[str]:
    others = iter(WAITER)
    return (step or next(others) for step in steps)


@pytest.mark.usefixtures("looks_later")
@pytest.mark.parametrize("order", ORDERS, ids=lambda steps: "-".join(order_of(steps)))
@pytest.mark.parametrize("ending", ["commits", "rolls_back"])
def test_a_waiter_goes_on_exactly_when_the_emitter_commits_whatever_the_order(
    order: list[str | None], ending: str
) -> None:
    with on_stage("emitter", "waiter", "worker") as [emitter, waiting, worker]:
        for look_at in range(6):
            name = f"event {look_at}"
            waiter = Waiter(name)
            acts = _acts(emitter, waiting, waiter, name, ending)
            moved = 0
            for place, step in enumerate(order_of(order)):
                if place == look_at:
                    moved += worker.does(look_as_worker)
                moved += acts[step]()
            moved += worker.does(look_as_worker)
            if ending == "rolls_back":
                assert (waiter.status, moved) == ("WAITING", 0)
                emit_event(name)
                moved += worker.does(look_as_worker)
            if waiter.has_payload:
                assert (waiter.status, moved) == ("RUNNING", 0)
            else:
                assert (waiter.status, moved) == ("READY", 1)
            assert worker.does(look_as_worker) == 0
            Job.objects.all().delete()


def _acts(emitter: Actor, waiting: Actor, waiter: Waiter, name: str, ending: str) -> dict[str, Callable[[], int]]:
    def emits() -> int:
        emitter.begins()
        assert emitter.does(emit_event, name)
        return 0

    def commits() -> int:
        emitter.commits() if ending == "commits" else emitter.rolls_back()
        return 0

    def act(step: Callable[[], int]) -> Callable[[], int]:
        return lambda: waiting.does(step)

    return {"emits": emits, "commits": commits} | {
        each: act(getattr(waiter, each)) for each in ("asks", "waits", "looks")
    }


@pytest.mark.parametrize("first_ends", ["commits", "rolls_back"])
def test_a_second_emitter_waits_for_the_first_and_stays_only_if_that_one_is_gone(first_ends: str) -> None:
    with on_stage("first", "second") as [first, second]:
        first.begins()
        assert first.does(emit_event, "paid", "first")
        late = second.starts(emit_event, "paid", "second")
        wait_until_blocked(second)
        getattr(first, first_ends)()
        assert late.result(timeout=60) is (first_ends == "rolls_back")
    assert Event.objects.get().payload == ("first" if first_ends == "commits" else "second")


@pytest.fixture
def waiting_job() -> Any:
    waiter = Waiter("paid")
    waiter.asks()
    waiter.waits()
    return waiter


def test_two_workers_that_look_at_once_wake_a_job_once(waiting_job: Waiter) -> None:
    emit_event("paid")
    with on_stage("first", "second") as [first, second]:
        first.begins()
        assert first.does(waits.wake, "default") == 1
        assert second.does(waits.wake, "default") == 0
        first.commits()
        assert second.does(waits.wake, "default") == 0
    assert waiting_job.status == "READY"


def test_a_job_whose_time_runs_out_as_its_event_comes_goes_on_once(waiting_job: Waiter) -> None:
    Job.objects.filter(pk=waiting_job.job.id).update(run_after="2020-01-01T00:00:00Z")
    emit_event("paid")
    with on_stage("clock", "waker") as [clock, waker]:
        clock.begins()
        assert clock.does(maintenance.promote, "default") == 1
        assert waker.does(waits.wake, "default") == 0
        clock.commits()
        assert waker.does(look_as_worker) == 0
    assert waiting_job.status == "READY"


def test_a_wait_that_was_locked_while_its_event_was_looked_at_is_news_still(waiting_job: Waiter) -> None:
    emit_event("paid")
    with on_stage("holder", "waker") as [holder, waker]:
        holder.begins()
        holder.does(lambda: list(Job.objects.select_for_update(no_key=True).filter(pk=waiting_job.job.id)))
        assert waker.does(look_as_worker) == 0
        holder.commits()
        assert waker.does(look_as_worker) == 1
    assert waiting_job.status == "READY"


def test_a_cancel_wins_over_an_event_that_comes_while_it_commits(waiting_job: Waiter) -> None:
    emit_event("paid")
    with on_stage("person", "waker") as [person, waker]:
        person.begins()
        assert person.does(lifecycle.cancel, "default", [waiting_job.job.id], reason="").cancelled
        assert waker.does(waits.wake, "default") == 0
        person.commits()
        assert waker.does(look_as_worker) == 0
    assert waiting_job.status == "CANCELLED"


def test_a_waiter_that_was_killed_before_it_looked_is_found_by_a_worker() -> None:
    waiter = Waiter("paid")
    waiter.asks()
    emit_event("paid")
    assert look_as_worker() == 0
    Job.objects.filter(pk=waiter.job.id).update(status="WAITING")
    assert look_as_worker() == 1


def test_an_event_that_was_looked_at_before_its_wait_was_committed_is_found_by_the_waiter() -> None:
    waiter = Waiter("paid")
    with on_stage("waiter", "worker") as [waiting, worker]:
        waiting.begins()
        waiting.does(waiter.asks)  # sees no event, and its wait is seen by nobody
        emit_event("paid")
        assert worker.does(look_as_worker) == 0
        waiting.commits()
        waiting.does(waiter.waits)
        assert waiter.status == "READY"
        assert worker.does(look_as_worker) == 0


def test_two_waiters_of_one_event_both_go_on() -> None:
    waiters = [Waiter("paid") for _ in range(2)]
    for waiter in waiters:
        waiter.asks()
        waiter.waits()
    emit_event("paid")
    assert look_as_worker() == 2
    assert [waiter.status for waiter in waiters] == ["READY", "READY"]
    assert Wait.objects.filter(is_satisfied=True).count() == 2
