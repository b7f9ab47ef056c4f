"""Which jobs a claim takes, and what it writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_reliable_jobs.engine import claim as claiming
from django_reliable_jobs.engine import exchange, lifecycle
from django_reliable_jobs.engine.claim import Arm
from django_reliable_jobs.models import CancelRequest, Job, Queue
from django_reliable_jobs.testing import at
from tests import tasks
from tests.actors import on_stage
from tests.claims import RETRY, SUCCESS, claim, claim_one_as, end, row, succeed
from tests.factories import ReadyJobFactory, ScheduledJobFactory
from tests.states import a_worker

pytestmark = pytest.mark.django_db


def in_line(*kinds: str) -> list[int]:
    """Put jobs in line, each a `plain`, `solo` (must not start twice) or `suspect` (lost its worker) one."""
    line = []
    for kind in kinds:
        fields = {"solo": {"max_attempts": 1}, "suspect": {"losses": 1, "claims": 1}}.get(kind, {})
        line.append(ReadyJobFactory(run_after=timezone.now() - timedelta(seconds=100 - len(line)), **fields).pk)
    return line


def ids(jobs: list[Any]) -> list[int]:
    return [job.id for job in jobs]


def test_a_claim_makes_the_job_running_under_a_fresh_token() -> None:
    job = tasks.nothing.enqueue(1, a=2)
    worker_id = a_worker(1)
    [claimed] = claim(worker_id)
    assert (claimed.id, claimed.attempt, claimed.claims, claimed.losses) == (job.pk, 1, 1, 0)
    assert (claimed.args, claimed.kwargs, claimed.task) == ("[1]", '{"a": 2}', job.task)
    first = row(claimed)
    assert (first.status, first.token, first.worker_id) == ("RUNNING", claimed.token, worker_id)
    assert first.started_at == first.first_started_at
    assert end(claimed, RETRY)
    [again] = claim(worker_id)
    second = row(claimed)
    assert again.token != claimed.token
    assert (again.attempt, again.claims) == (2, 2)
    assert second.first_started_at == first.first_started_at < second.started_at


def test_tokens_differ_within_one_claim() -> None:
    tasks.nothing.enqueue_many([{}] * 100)
    assert len({job.token for job in claim(a_worker(1), 100)}) == 100


def test_it_takes_no_more_than_the_limit_in_due_order() -> None:
    line = in_line(*["plain"] * 5)
    assert ids(claim(a_worker(1), 3)) == line[:3]
    assert ids(claim(a_worker(1), 3)) == line[3:]


def test_what_must_not_start_twice_is_taken_for_free_threads_only() -> None:
    line = in_line("plain", "solo", "plain", "solo", "plain")
    assert ids(claim(a_worker(1), 5, free=2)) == line[:3]


def test_nothing_overtakes_what_is_held_back_for_want_of_a_thread() -> None:
    line = in_line("solo", "plain", "plain")
    assert ids(claim(a_worker(1), 3, free=0)) == []
    assert ids(claim(a_worker(1), 3, free=1)) == line


def test_a_suspect_is_left_to_a_process_that_holds_nothing_else() -> None:
    line = in_line("suspect", "plain", "plain")
    assert ids(claim(a_worker(1), 3, alone=False)) == line[1:]
    assert row(Job.objects.get(pk=line[0])).status == "READY"


def test_a_suspect_is_taken_alone() -> None:
    line = in_line("suspect", "plain", "suspect")
    assert ids(claim(a_worker(1), 3)) == line[:1]
    assert ids(claim(a_worker(2), 3)) == line[1:2]  # the batch ends before the next suspect
    assert ids(claim(a_worker(3), 3)) == line[2:]


def test_a_job_that_was_asked_to_cancel_is_passed_over() -> None:
    line = in_line("plain", "plain")
    Job.objects.filter(pk=line[0]).update(status="SCHEDULED")
    with on_a_running(line[0]):
        lifecycle.cancel("default", [line[0]], reason="")
    Job.objects.filter(pk=line[0]).update(status="READY", finished_at=None)
    assert ids(claim(a_worker(1), 2)) == line[1:]
    assert claiming.claim_passed_over("default", a_worker(1), line[0], patience=1) is None


class on_a_running:
    """The job is RUNNING inside the block, as when a request meets a retry that is being written."""

    def __init__(self, job_id: int) -> None:
        self._job = Job.objects.filter(pk=job_id)

    def __enter__(self) -> None:
        self._job.update(status="RUNNING", token=1, worker_id=1, started_at=timezone.now())

    def __exit__(self, *_: object) -> None:
        self._job.update(status="READY")


def test_jobs_with_a_limit_are_not_taken_from_the_fast_index() -> None:
    for key in ("concurrency_key", "rate_key", "serial_key"):
        ReadyJobFactory(**{key: "x"})
    assert claim(a_worker(1), 10) == []


def test_a_paused_queue_is_not_claimed_from_until_its_pause_ends() -> None:
    tasks.nothing.enqueue()
    queue = Queue.objects.create(name="default", paused_at=timezone.now())
    assert claim(a_worker(1)) == []
    queue.resume_at = timezone.now() + timedelta(hours=1)
    queue.save()
    assert claim(a_worker(1)) == []
    with at(timezone.now() + timedelta(hours=2)):
        assert len(claim(a_worker(1))) == 1


@pytest.mark.parametrize("field", ["expires_at", "start_before"])
def test_a_job_past_its_last_moment_is_claimed_as_late(field: str) -> None:
    ReadyJobFactory(**{field: timezone.now() - timedelta(seconds=1)})
    ReadyJobFactory(**{field: timezone.now() + timedelta(hours=1)})
    assert [job.is_late for job in claim(a_worker(1), 2)] == [True, False]


def test_a_key_that_is_unique_until_the_start_is_given_up_by_the_claim() -> None:
    job = tasks.unique_until_start.enqueue("key")
    claim_one_as(1)
    assert row(job).unique_hash is None
    assert tasks.unique_until_start.enqueue("key").created
    until_end = tasks.unique.enqueue("key")
    claim(a_worker(1), 2)
    assert row(until_end).unique_hash is not None


def test_an_exchange_records_and_claims_at_once() -> None:
    tasks.nothing.enqueue_many([{}] * 3)
    worker_id = a_worker(1)
    first = claim(worker_id, 2)
    done = [lifecycle.Ending(job.id, job.token, SUCCESS, 0.5, 0.1) for job in first]
    written, claimed = exchange.exchange("default", worker_id, done, [Arm("default", 0, 5)], limit=5, free=5)
    assert written == set(ids(first))
    assert len(claimed) == 1
    ended = row(first[0])
    assert (ended.status, ended.result) == ("SUCCEEDED", "done")
    assert 0.4 <= (ended.finished_at - ended.started_at).total_seconds() < 0.5


def test_claims_that_nobody_holds_are_found_as_orphans() -> None:
    tasks.nothing.enqueue_many([{}] * 5)
    worker_id = a_worker(1)
    held, lost, ended, retried = claim(worker_id, 4)
    claim_one_as(2)
    succeed(ended), end(retried, RETRY)
    assert claiming.find_orphans("default", worker_id, {held.token}) == [lost]
    assert claiming.find_orphans("default", worker_id, {held.token, lost.token}) == []


def test_a_job_that_was_passed_over_is_claimed_by_its_id() -> None:
    line = in_line("plain", "plain")
    job = claiming.claim_passed_over("default", a_worker(1), line[1], patience=1)
    assert job is not None
    assert (job.id, job.attempt, row(job).status) == (line[1], 1, "RUNNING")
    assert claiming.claim_passed_over("default", a_worker(1), line[1], patience=1) is None  # it runs


@pytest.mark.django_db(transaction=True)
def test_the_wait_for_a_passed_over_job_has_an_end() -> None:
    job = tasks.nothing.enqueue()
    with on_stage("holder") as [holder]:
        holder.begins()
        holder.does(lambda: Job.objects.select_for_update().get(pk=job.pk))
        assert claiming.claim_passed_over("default", a_worker(1), job.pk, patience=0.05) is None
        holder.rolls_back()
    assert row(job).status == "READY"


def test_a_look_sees_the_head_of_each_line_and_the_next_due_moment() -> None:
    assert claiming.look("default") == claiming.Sight([], None, [])
    for queue, priority in (("a", 0), ("a", 0), ("a", 5), ("b", 0)):
        ReadyJobFactory(queue_name=queue, priority=priority)
    Queue.objects.create(name="b", paused_at=timezone.now())
    suspect = ReadyJobFactory(queue_name="c", losses=1)
    ScheduledJobFactory()
    heads, next_due, *_ = claiming.look("default")
    assert {(head.queue_name, head.priority) for head in heads} == {("a", 0), ("a", 5), ("c", 0)}
    assert [head.id for head in heads if head.is_suspect] == [suspect.pk]
    assert all(59 < head.waited < 70 for head in heads)
    assert next_due is not None
    assert 3500 < next_due <= 3600


class TestTheNextInLine:
    """A claim without a look: of one job, behind a place in its line."""

    @pytest.fixture
    def line(self) -> Arm:
        """A place behind a job that was taken a minute ago."""
        job = ReadyJobFactory(run_after=timezone.now() - timedelta(minutes=1))
        taken = claiming.claim_next("default", a_worker(1), Arm("default", 0, 1))
        assert taken is not None
        assert taken.id == job.pk
        return Arm("default", 0, 1, taken.due, taken.id)

    def test_the_oldest_behind_the_place_is_taken_alone(self, line: Arm) -> None:
        later, sooner = (ReadyJobFactory(run_after=timezone.now() - timedelta(seconds=age)) for age in (10, 20))
        taken = claiming.claim_next("default", a_worker(2), line)
        assert taken is not None
        assert (taken.id, taken.attempt, row(taken).status) == (sooner.pk, 1, "RUNNING")
        assert Job.objects.get(pk=later.pk).status == "READY"

    def test_what_lies_before_the_place_is_left_to_a_look(self, line: Arm) -> None:
        ReadyJobFactory(run_after=timezone.now() - timedelta(hours=1))
        assert claiming.claim_next("default", a_worker(2), line) is None

    @pytest.mark.parametrize(
        "other",
        [
            {"losses": 1, "claims": 1},
            {"queue_name": "another"},
            {"priority": -1},
            {"concurrency_key": "few"},
            {"priority": 1, "queue_name": "another"},
        ],
        ids=str,
    )
    def test_what_does_not_stand_in_the_line_is_not_taken(self, line: Arm, other: dict[str, Any]) -> None:
        ReadyJobFactory(**other)
        assert claiming.claim_next("default", a_worker(2), line) is None

    def test_nothing_is_taken_while_a_higher_priority_is_ready_in_the_queue(self, line: Arm) -> None:
        first, second = ReadyJobFactory(priority=1), ReadyJobFactory()
        assert claiming.claim_next("default", a_worker(2), line) is None
        Job.objects.filter(pk=first.pk).update(status="SCHEDULED", run_after=timezone.now() + timedelta(hours=1))
        taken = claiming.claim_next("default", a_worker(2), line)
        assert taken is not None
        assert taken.id == second.pk

    @pytest.mark.parametrize("name", ["default", "*"])
    def test_nothing_is_taken_from_a_paused_queue(self, line: Arm, name: str) -> None:
        Queue.objects.create(name=name, paused_at=timezone.now())
        ReadyJobFactory()
        assert claiming.claim_next("default", a_worker(2), line) is None

    def test_nothing_is_taken_from_a_queue_with_a_limit_of_its_own(self, line: Arm) -> None:
        Queue.objects.create(name="default", concurrency=1)
        ReadyJobFactory()
        assert claiming.claim_next("default", a_worker(2), line) is None

    def test_what_was_asked_to_cancel_is_not_taken(self, line: Arm) -> None:
        job = ReadyJobFactory()
        CancelRequest.objects.create(job=job)
        assert claiming.claim_next("default", a_worker(2), line) is None
