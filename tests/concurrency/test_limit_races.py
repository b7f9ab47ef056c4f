"""Who gets the last place of a limit, interleaved by hand at each statement of a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import DatabaseError, connection

from django_reliable_jobs.engine import lifecycle, limits, maintenance
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.limited import claim_passed_over
from django_reliable_jobs.engine.lines import Line
from django_reliable_jobs.models import Job, Queue
from tests import limited_tasks, tasks
from tests.actors import Actor, on_stage, wait_until_blocked
from tests.claims import RETRY, end, let_lease_run_out
from tests.limited_claims import claim_locked, find, find_and_take, lock, take, take_capped
from tests.states import a_worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def actors() -> Iterator[list[Actor]]:
    limits.declare("default")
    with on_stage("first", "second") as actors:
        yield actors


def at_the_last_place_of_a_concurrency() -> None:
    limited_tasks.three_at_a_time.enqueue_many([{}] * 5)
    assert len(find_and_take(a_worker(), 2)) == 2


def at_the_last_start_of_a_rate() -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 5)
    assert len(find_and_take(a_worker(), 1)) == 1


def at_the_turn_of_a_schedule() -> None:
    jobs = tasks.nothing.enqueue_many([{}] * 5)
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(serial_key="nightly")


def at_the_last_place_of_two_limits() -> None:
    limited_tasks.call_api.enqueue_many([{"customer_id": 1}] * 5)


every_last_place = pytest.mark.parametrize(
    "prepare",
    [
        at_the_last_place_of_a_concurrency,
        at_the_last_start_of_a_rate,
        at_the_turn_of_a_schedule,
        at_the_last_place_of_two_limits,
    ],
)


@every_last_place
@pytest.mark.parametrize("steps", range(4))
def test_of_two_workers_at_the_last_place_one_gets_it(
    actors: list[Actor], prepare: Callable[[], None], steps: int
) -> None:
    """The second does all its steps after so many of the first's; both saw the place free."""
    first, second = actors
    prepare()
    workers = a_worker(1), a_worker(2)
    seen = first.does(find).lines, second.does(find).lines
    assert len(seen[0]) == len(seen[1]) == 1
    first.begins()
    locked: list[Line] = []
    mine: list[ClaimedJob] = []

    def lock_mine() -> None:
        locked.extend(first.does(lock, seen[0]))

    def claim_mine() -> None:
        mine.extend(first.does(claim_locked, workers[0], locked) if locked else [])

    turns: list[Callable[[], None]] = [lock_mine, claim_mine, first.commits]
    for turn in turns[:steps]:
        turn()
    theirs = second.does(take, workers[1], seen[1])
    for turn in turns[steps:]:
        turn()
    winner = "second" if steps == 0 else "first"
    assert (len(mine), len(theirs)) == ((0, 1) if winner == "second" else (1, 0))


@every_last_place
def test_a_claim_that_is_rolled_back_leaves_the_place_to_the_other(
    actors: list[Actor], prepare: Callable[[], None]
) -> None:
    first, second = actors
    prepare()
    seen = find().lines
    first.begins()
    assert len(first.does(claim_locked, a_worker(1), first.does(lock, seen))) == 1
    first.rolls_back()
    assert len(second.does(take, a_worker(2), seen)) == 1


@every_last_place
def test_a_worker_that_dies_between_the_statements_holds_nothing(
    actors: list[Actor], prepare: Callable[[], None]
) -> None:
    first, second = actors
    prepare()
    seen = find().lines
    first.begins()
    first.does(lock, seen)
    assert second.does(take, a_worker(2), seen) == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [first.backend_pid])
    assert len(second.does(take, a_worker(2), seen)) == 1
    with pytest.raises(DatabaseError):
        first.does(claim_locked, a_worker(1), seen)
    first.does(lambda: connection.close())


def test_two_workers_at_three_places_fill_them_and_no_more(actors: list[Actor]) -> None:
    limited_tasks.three_at_a_time.enqueue_many([{}] * 9)
    first, second = actors
    seen = find().lines
    assert len(first.does(take, a_worker(1), seen, 2)) == 2
    assert len(second.does(take, a_worker(2), seen, 8)) == 1
    assert len(first.does(take, a_worker(1), seen, 8)) == 0


def test_an_end_that_has_not_committed_frees_no_place(actors: list[Actor]) -> None:
    limited_tasks.one_at_a_time.enqueue_many([{}] * 2)
    first, second = actors
    [job] = find_and_take(a_worker(1))
    first.begins()
    assert first.does(end, job, RETRY)
    assert second.does(find_and_take, a_worker(2)) == []
    first.commits()
    assert len(second.does(find_and_take, a_worker(2))) == 1


def test_rescue_frees_a_place_with_its_commit_and_not_before(actors: list[Actor]) -> None:
    limited_tasks.one_at_a_time.enqueue_many([{}] * 2)
    first, second = actors
    [job] = find_and_take(a_worker(1))
    let_lease_run_out(job)
    first.begins()
    assert first.does(maintenance.rescue, "default") == 1
    assert second.does(find_and_take, a_worker(2)) == []
    first.commits()
    [again] = second.does(find_and_take, a_worker(2))
    assert again.id == job.id  # it kept its place in the line


def test_an_override_that_commits_between_the_statements_of_a_claim_is_in_force(actors: list[Actor]) -> None:
    limited_tasks.three_at_a_time.enqueue_many([{}] * 5)
    worker, operator = actors
    worker.begins()
    locked = worker.does(lock, find().lines)
    operator.does(limits.override, "default", "concurrency", "tests.limited_tasks.three_at_a_time", 1)
    assert len(worker.does(claim_locked, a_worker(), locked)) == 1
    worker.commits()


def test_keys_that_change_while_a_job_waits_count_where_it_is_claimed(actors: list[Actor]) -> None:
    worker, caller = actors
    limited_tasks.for_customer.enqueue("key", 1)
    seen = find().lines
    caller.does(limited_tasks.for_customer.enqueue, "key", 2)  # replaces the arguments
    assert worker.does(take, a_worker(), seen) == []
    [job] = worker.does(find_and_take, a_worker())
    assert Job.objects.get(pk=job.id).concurrency_key == "tests.limited_tasks.for_customer:customer_id=2"


def test_a_place_that_another_line_of_the_key_has_taken_is_taken(actors: list[Actor]) -> None:
    """Two tasks share the limit `crm` of two, in different queues."""
    limited_tasks.crm_read.enqueue_many([{}] * 3)
    limited_tasks.crm_export.enqueue_many([{}] * 3)
    first, second = actors
    reads, exports = find("default").lines, find("exports").lines
    first.begins()
    assert len(first.does(claim_locked, a_worker(1), first.does(lock, reads), 1)) == 1
    assert second.does(take, a_worker(2), exports) == []
    first.commits()
    assert len(second.does(take, a_worker(2), exports)) == 1
    assert first.does(take, a_worker(1), reads) == []


def test_the_last_place_of_a_queue_goes_to_one_whether_its_job_is_limited_or_not(actors: list[Actor]) -> None:
    Queue.objects.create(name="default", concurrency=1)
    tasks.nothing.enqueue_many([{}] * 3)
    limited_tasks.three_at_a_time.enqueue_many([{}] * 3)
    first, second = actors
    seen = find().lines
    first.begins()
    assert len(first.does(claim_locked, a_worker(1), first.does(lock, seen))) == 1
    assert second.does(take_capped, a_worker(2)) == []
    first.commits()
    assert second.does(take_capped, a_worker(2)) == []
    Job.objects.filter(status="RUNNING").update(status="READY")
    second.begins()
    assert len(second.does(take_capped, a_worker(2))) == 1
    assert first.does(take, a_worker(1), seen) == []
    second.commits()
    assert first.does(take, a_worker(1), seen) == []


def test_a_queue_that_gets_a_limit_between_the_look_and_the_claim_is_left_for_the_next_look(
    actors: list[Actor],
) -> None:
    limited_tasks.three_at_a_time.enqueue_many([{}] * 3)
    worker, operator = actors
    seen = find().lines
    operator.does(Queue.objects.create, name="default", concurrency=1)
    assert worker.does(take, a_worker(), seen) == []
    assert len(worker.does(find_and_take, a_worker())) == 1


def test_a_job_whose_row_is_held_is_passed_over_and_claimed_in_line_for_its_lock(actors: list[Actor]) -> None:
    worker, caller = actors
    job = limited_tasks.rebuild.enqueue("hot")
    caller.begins()
    caller.does(limited_tasks.rebuild.enqueue, "hot", "again")
    assert worker.does(find_and_take, a_worker(1)) == []
    waiting = worker.starts(claim_passed_over, "default", a_worker(1), job.pk, patience=60)
    wait_until_blocked(worker)
    caller.commits()
    claimed = waiting.result(timeout=60)
    assert claimed is not None and claimed.id == job.pk


def test_a_job_that_was_passed_over_is_not_claimed_over_its_limit(actors: list[Actor]) -> None:
    limited_tasks.one_at_a_time.enqueue_many([{}] * 2)
    find_and_take(a_worker(1))
    left = Job.objects.get(status="READY")
    assert actors[0].does(claim_passed_over, "default", a_worker(2), left.pk, patience=1) is None
    Queue.objects.create(name="full", concurrency=0)
    ordinary = tasks.nothing.using(queue_name="full").enqueue()
    assert actors[0].does(claim_passed_over, "default", a_worker(2), ordinary.pk, patience=1) is None
    Queue.objects.update(concurrency=1)
    claimed = actors[0].does(claim_passed_over, "default", a_worker(2), ordinary.pk, patience=1)
    assert claimed is not None and claimed.id == ordinary.pk


def test_a_job_with_a_wish_to_cancel_is_passed_over_and_holds_nobody_up(actors: list[Actor]) -> None:
    asked, other = limited_tasks.one_at_a_time.enqueue_many([{}] * 2)
    find_and_take(a_worker(1))
    lifecycle.cancel("default", [asked.pk], reason="enough")
    Job.objects.filter(pk=asked.pk).update(status="READY")  # released before the wish was answered
    [job] = actors[0].does(find_and_take, a_worker(2))
    assert job.id == other.pk
    assert maintenance.honour_cancel_requests("default").requests == 1
