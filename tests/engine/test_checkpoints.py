"""What an attempt writes while it runs, and what it can't write once it was replaced."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_reliable_jobs.engine import atomic, lifecycle
from django_reliable_jobs.exceptions import InvalidCheckpoint, LeaseLost
from django_reliable_jobs.models import Checkpoint
from tests import tasks
from tests.claims import DEATH, RETRY, claim_one_as, end, port_of, replace, succeed
from tests.models import Effect

pytestmark = pytest.mark.django_db


def idle_limit() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        return str(cursor.fetchone()[0])


@pytest.fixture
def lease(settings) -> None:  # type: ignore[no-untyped-def]
    settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "LEASE_SECONDS": 7}


def test_a_checkpoint_comes_back_as_it_was_saved() -> None:
    tasks.nothing.enqueue()
    port = port_of(claim_one_as(1))
    assert port.load("cursor", "default") == "default"
    for value in ({"a": [1, 2.5, None, "ä"]}, 0, None, False):
        port.save("cursor", value)
        assert port.load("cursor", "default") == value
    assert Checkpoint.objects.count() == 1


def test_a_later_attempt_loads_it_and_another_job_does_not() -> None:
    tasks.nothing.enqueue()
    first = claim_one_as(1)
    port_of(first).save("cursor", 5)
    assert end(first, RETRY)
    assert port_of(claim_one_as(2)).load("cursor", 0) == 5
    tasks.nothing.enqueue()
    assert port_of(claim_one_as(3)).load("cursor", 0) == 0


def test_a_value_that_is_not_json_leaves_the_earlier_one(settings) -> None:  # type: ignore[no-untyped-def]
    settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "MAX_RESULT_BYTES": 100}
    tasks.nothing.enqueue()
    port = port_of(claim_one_as(1))
    port.save("cursor", 1)
    for value in ({1, 2}, float("nan"), "a\0b", "x" * 101):
        with pytest.raises(InvalidCheckpoint, match="cursor"):
            port.save("cursor", value)
    assert port.load("cursor", 0) == 1


def test_a_replaced_attempt_saves_nothing() -> None:
    tasks.nothing.enqueue()
    first = claim_one_as(1)
    port_of(first).save("cursor", "first")
    second = replace(first)
    port_of(second).save("cursor", "second")
    with pytest.raises(LeaseLost, match=str(first.id)):
        port_of(first).save("cursor", "too late")
    with pytest.raises(LeaseLost):
        port_of(first).save("other", "too late")
    assert list(Checkpoint.objects.values_list("name", "value", "token")) == [("cursor", "second", second.token)]


def test_a_replaced_attempt_writes_nothing_that_is_fenced() -> None:
    tasks.nothing.enqueue()
    first = claim_one_as(1)
    second = replace(first)
    with pytest.raises(LeaseLost), port_of(first).fenced():
        Effect.objects.create(name="first")
    with port_of(second).fenced():
        Effect.objects.create(name="second")
    assert list(Effect.objects.values_list("name", flat=True)) == ["second"]


@pytest.mark.parametrize("ending", ["success", "death", "retry", "cancelled"])
def test_an_attempt_that_has_ended_writes_nothing_more(ending: str) -> None:
    tasks.nothing.enqueue()
    job = claim_one_as(1)
    if ending == "cancelled":
        lifecycle.cancel("default", [job.id], reason="")
    assert succeed(job) if ending == "success" else end(job, RETRY if ending == "retry" else DEATH)
    with pytest.raises(LeaseLost):
        port_of(job).save("cursor", 1)
    with pytest.raises(LeaseLost), port_of(job).fenced():
        Effect.objects.create(name="too late")
    assert not Checkpoint.objects.exists()
    assert not Effect.objects.exists()


def test_an_error_in_a_fenced_block_undoes_it_and_keeps_the_attempt() -> None:
    tasks.nothing.enqueue()
    port = port_of(claim_one_as(1))
    with pytest.raises(ValueError, match="mine"), port.fenced():
        Effect.objects.create(name="undone")
        raise ValueError("mine")
    with port.fenced():
        Effect.objects.create(name="kept")
    assert list(Effect.objects.values_list("name", flat=True)) == ["kept"]


@pytest.mark.django_db(transaction=True)
def test_a_checkpoint_commits_with_the_writes_around_it() -> None:
    tasks.nothing.enqueue()
    port = port_of(claim_one_as(1))
    with pytest.raises(ValueError, match="undo"), transaction.atomic():
        Effect.objects.create(name="undone")
        port.save("cursor", 1)
        raise ValueError("undo")
    assert port.load("cursor", 0) == 0
    port.save("cursor", 2)  # in a transaction of its own
    assert port.load("cursor", 0) == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("lease")
@pytest.mark.parametrize("fence", ["checkpoint", "fenced", "success"])
def test_who_took_the_fence_may_sit_idle_for_a_lease_and_no_longer(fence: str) -> None:
    tasks.nothing.enqueue()
    job = claim_one_as(1)
    before = idle_limit()
    if fence == "success":
        with atomic.succeeding("default", job.id, job.token) as record:
            assert idle_limit() == before
            record(None, 0.0)
            assert idle_limit() == "7s"
    else:
        with transaction.atomic():
            if fence == "checkpoint":
                port_of(job).save("cursor", 1)
            else:
                with port_of(job).fenced():
                    assert idle_limit() == before
            assert idle_limit() == "7s"
    assert idle_limit() == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("lease")
@pytest.mark.parametrize(("set_already", "expected"), [("3s", "3s"), ("90s", "7s"), ("1h", "7s"), ("0", "7s")])
def test_a_shorter_limit_that_is_set_already_stays(set_already: str, expected: str) -> None:
    tasks.nothing.enqueue()
    port = port_of(claim_one_as(1))
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{set_already}'")
        port.save("cursor", 1)
        assert idle_limit() == expected


def test_an_earlier_runs_checkpoint_is_not_seen() -> None:
    tasks.nothing.enqueue()
    job = claim_one_as(1)
    port_of(job).save("cursor", 1)
    assert port_of(job._replace(run=2)).load("cursor", 0) == 0
