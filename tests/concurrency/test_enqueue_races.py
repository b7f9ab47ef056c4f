"""Callers that meet at one unique key, step by step."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from django_reliable_jobs.arguments import hash_of_key
from django_reliable_jobs.engine import insert
from django_reliable_jobs.exceptions import DuplicateJob
from django_reliable_jobs.models import Job
from tests.actors import Actor, on_stage, wait_until_blocked
from tests.engine.test_unique import bring_to, keeps, postpones, raises, replaces

pytestmark = pytest.mark.django_db(transaction=True)


def is_waiting(future: Future[Any], actor: Actor) -> bool:
    wait_until_blocked(actor)
    return not future.done()


def sqlstate(error: BaseException) -> str:
    return str(getattr(error.__cause__, "sqlstate", ""))


# Two callers


@pytest.mark.parametrize("function", [keeps, replaces, postpones])
@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_the_second_caller_waits_and_finds_the_job_of_the_first_that_commits(function: Any, many: bool) -> None:
    with on_stage("first", "second") as [first, second]:
        first.begins(), second.begins()
        job = first.does(function.enqueue, 1, "first")
        if many:
            answer = second.starts(lambda: function.enqueue_many([{"order_id": 1, "kind": "second"}])[0])
        else:
            answer = second.starts(function.enqueue, 1, "second")
        assert is_waiting(answer, second)
        first.commits()
        found = answer.result(timeout=60)
        assert (found, found.created) == (job, False)
        assert second.does(Job.objects.count) == 1, "its transaction is usable"
        second.commits()
    assert Job.objects.get() == job


@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_the_second_caller_makes_the_job_when_the_first_rolls_back(many: bool) -> None:
    with on_stage("first", "second") as [first, second]:
        first.begins(), second.begins()
        first.does(keeps.enqueue, 1, "first")
        if many:
            answer = second.starts(lambda: keeps.enqueue_many([{"order_id": 1}, {"order_id": 2}])[0])
        else:
            answer = second.starts(keeps.enqueue, 1)
        assert is_waiting(answer, second)
        first.rolls_back()
        made = answer.result(timeout=60)
        assert made.created
        second.commits()
    assert Job.objects.filter(pk=made.pk, status="READY").exists()
    assert Job.objects.count() == (2 if many else 1)


def test_the_second_caller_does_not_wait_for_more_than_the_savepoint_of_the_first() -> None:
    def enqueue_and_undo(answer: list[Future[Job]]) -> None:
        with transaction.atomic():
            keeps.enqueue(1, "first")
            answer.append(second.starts(keeps.enqueue, 1, "second"))
            wait_until_blocked(second)
            transaction.set_rollback(True)

    with on_stage("first", "second") as [first, second]:
        first.begins(), second.begins()
        answers: list[Future[Job]] = []
        first.does(enqueue_and_undo, answers)
        made = answers[0].result(timeout=60)
        second.commits(), first.commits()
    assert made.created
    assert Job.objects.get() == made


def test_the_caller_that_comes_second_may_commit_first() -> None:
    with on_stage("first", "second") as [first, second]:
        first.begins(), second.begins()
        first.does(keeps.enqueue, 1)
        made = second.does(keeps.enqueue, 2)
        answer = first.starts(keeps.enqueue, 2)
        assert is_waiting(answer, first)
        second.commits()
        assert (answer.result(timeout=60), answer.result().created) == (made, False)
        first.commits()
    assert Job.objects.count() == 2


def test_with_raise_the_second_caller_hears_of_the_first_and_goes_on() -> None:
    def try_to_enqueue() -> Job | None:
        try:
            raises.enqueue(1)
        except DuplicateJob as error:
            return error.job
        return None

    with on_stage("first", "second") as [first, second]:
        first.begins(), second.begins()
        job = first.does(raises.enqueue, 1)
        answer = second.starts(try_to_enqueue)
        assert is_waiting(answer, second)
        first.commits()
        assert answer.result(timeout=60) == job
        assert second.does(raises.enqueue, 2).created
        second.commits()
    assert Job.objects.count() == 2


def test_callers_of_one_waiting_key_go_one_after_another_and_the_last_replaces() -> None:
    job = replaces.enqueue(1, "old")
    with on_stage("first", "second") as [first, second]:
        first.begins(), second.begins()
        first.does(replaces.enqueue, 1, "first")
        answer = second.starts(replaces.enqueue, 1, "second")
        assert is_waiting(answer, second)
        first.commits()
        assert answer.result(timeout=60) == job
        second.commits()
    assert Job.objects.get().args == [1, "second"]


# Many keys


def in_order_of_hashes(count: int) -> list[int]:
    return sorted(range(count), key=lambda order_id: hash_of_key(keeps.name, {"order_id": order_id}))


def enqueue_all(order_ids: list[int]) -> list[bool]:
    return [job.created for job in keeps.enqueue_many([{"order_id": order_id} for order_id in order_ids])]


@pytest.mark.parametrize("chunk", [1, 2, 5000])
def test_two_callers_of_the_same_keys_in_opposite_order_meet_at_the_first_key(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(insert, "CHUNK", chunk)
    with on_stage("first", "second") as [first, second]:
        first.begins(), second.begins()
        assert first.does(enqueue_all, [1, 2, 3, 4, 5]) == [True] * 5
        answer = second.starts(enqueue_all, [6, 5, 4, 3, 2, 1])
        assert is_waiting(answer, second)
        first.commits()
        assert answer.result(timeout=60)[1:] == [False] * 5
        second.commits()
    assert Job.objects.count() == 6


def test_keys_of_later_chunks_are_inserted_before_duplicates_of_earlier_chunks_are_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were each chunk finished before the next, `wide` would hold `low` and wait for `narrow`, who waits for `low`."""
    monkeypatch.setattr(insert, "CHUNK", 2)
    lowest, low, middle, high = in_order_of_hashes(4)
    enqueue_all([lowest, low])
    with on_stage("wide", "narrow", "blocker") as [wide, narrow, blocker]:
        wide.begins(), narrow.begins(), blocker.begins()
        blocker.does(enqueue_all, [middle])
        answer = wide.starts(enqueue_all, [high, middle, low, lowest])
        assert is_waiting(answer, wide)
        assert narrow.does(enqueue_all, [low, high]) == [False, True]
        blocker.rolls_back()
        assert is_waiting(answer, wide)
        narrow.commits()
        assert answer.result(timeout=60) == [False, True, False, False]
        wide.commits()
    assert Job.objects.count() == 4


def test_separate_calls_in_opposite_order_deadlock_and_one_caller_goes_on() -> None:
    with on_stage("first", "second") as [first, second]:
        first.begins(), second.begins()
        first.does(keeps.enqueue, 1), second.does(keeps.enqueue, 2)
        answers = [first.starts(keeps.enqueue, 2), second.starts(keeps.enqueue, 1)]
        errors = [error for error in (answer.exception(timeout=60) for answer in answers) if error]
        assert [type(error) for error in errors] == [OperationalError]
        assert sqlstate(errors[0]) == "40P01"
        [made] = [answer.result() for answer in answers if not answer.exception()]
        assert made.created
        first.rolls_back(), second.rolls_back()


# Other isolation levels


def set_isolation(level: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    assert Job.objects.count() >= 0  # takes the snapshot


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("many", [False, True], ids=["enqueue", "enqueue_many"])
def test_above_read_committed_a_caller_of_a_key_taken_since_its_snapshot_fails_to_serialize(
    level: str, many: bool
) -> None:
    with on_stage("caller") as [caller]:
        caller.begins()
        caller.does(set_isolation, level)
        job = keeps.enqueue(1)
        with pytest.raises(OperationalError) as caught:
            caller.does(enqueue_all, [1]) if many else caller.does(keeps.enqueue, 1)
        assert sqlstate(caught.value) == "40001"
        caller.rolls_back()
        assert caller.does(keeps.enqueue, 1) == job, "another try finds it"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_above_read_committed_what_the_snapshot_shows_is_fine(level: str) -> None:
    job = keeps.enqueue(1)
    running = bring_to(keeps.enqueue(2), "RUNNING")
    with on_stage("caller") as [caller]:
        caller.begins()
        caller.does(set_isolation, level)
        assert caller.does(enqueue_all, [1, 2, 3]) == [False, False, True]
        assert caller.does(keeps.enqueue, 1) == job
        assert caller.does(keeps.enqueue, 2) == running
        caller.commits()
    assert Job.objects.count() == 3
