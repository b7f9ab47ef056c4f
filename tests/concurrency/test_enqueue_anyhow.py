"""Whatever callers do with their transactions, a job exists if and only if the row beside it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DataError, connection, transaction

from django_reliable_jobs import task
from django_reliable_jobs.engine import insert
from django_reliable_jobs.exceptions import DuplicateJob, InvalidArguments
from django_reliable_jobs.models import Job
from tests.actors import on_stage
from tests.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)

TURNS = 100  # of each caller


@task()
def plain(key: str) -> None:
    pass


@task(expires=60)
def expiring(key: str) -> None:
    pass


@task(unique="key")
def unique(key: str) -> None:
    pass


@task(unique="key", on_duplicate="raise")
def refusing(key: str) -> None:
    pass


class Undone(Exception):
    pass


class Caller:
    """Does at random what callers do, and knows which keys were committed."""

    def __init__(self, name: str, seed: int) -> None:
        self.random = random.Random(f"{name} {seed}")
        self._keys = (f"{name} {number}" for number in count())
        self.committed: set[str] = set()

    def turn(self) -> None:
        if self.random.random() < 0.1:
            connection.close()
        self.committed |= self.block() if self.random.random() < 0.7 else self.act()

    def block(self, depth: int = 0) -> set[str]:
        """Act inside `atomic`, and further blocks in that; return the keys that it leaves."""
        kept: set[str] = set()
        try:
            with transaction.atomic():
                for _ in range(self.random.randrange(5)):
                    kept |= self.block(depth + 1) if depth < 3 and self.random.random() < 0.4 else self.act()
                if self.random.random() < 0.2:
                    raise Undone
                if self.random.random() < 0.1:
                    transaction.set_rollback(True)
                    return set()
        except Undone:
            return set()
        return kept

    def act(self) -> set[str]:
        acts: list[Callable[[Any], set[str]]] = [self.one, self.one, self.awaited, self.many, self.wrong, self.broken]
        return self.random.choice(acts)(self.random.choice([plain, plain, expiring, unique, refusing]))

    def one(self, function: Any) -> set[str]:
        key = next(self._keys)
        Effect.objects.create(name=key)
        function.enqueue(key)
        return {key}

    def awaited(self, function: Any) -> set[str]:
        key = next(self._keys)
        async_to_sync(function.aenqueue)(key)
        Effect.objects.create(name=key)
        return {key}

    def many(self, function: Any) -> set[str]:
        keys = [next(self._keys) for _ in range(self.random.choice((1, 5, 6, 7, 13)))]
        function.enqueue_many({"key": key} for key in keys)
        Effect.objects.bulk_create(Effect(name=key) for key in keys)
        return set(keys)

    def wrong(self, function: Any) -> set[str]:
        with pytest.raises(InvalidArguments):
            function.enqueue_many([*({"key": next(self._keys)} for _ in range(8)), {"key": object()}])
        with pytest.raises(InvalidArguments):
            function.enqueue("\0")
        with pytest.raises(DuplicateJob):
            refusing.enqueue_many([{"key": next(self._keys)}, {"key": "taken"}])
        return set()

    def broken(self, function: Any) -> set[str]:
        with pytest.raises(DataError), transaction.atomic():
            self.one(function)
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        return set()


@pytest.mark.parametrize("seed", range(2))
def test_a_job_exists_if_and_only_if_the_row_beside_it_does(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(insert, "CHUNK", 6)
    refusing.enqueue("taken")
    callers = [Caller(name, seed) for name in ("one", "two", "three")]

    def act(caller: Caller) -> None:
        for _ in range(TURNS):
            caller.turn()

    with on_stage("one", "two", "three") as actors:
        for answer in [actor.starts(act, caller) for actor, caller in zip(actors, callers, strict=True)]:
            answer.result(timeout=120)
    committed = sorted(set().union(*(caller.committed for caller in callers)))
    assert len(committed) > TURNS
    assert sorted(Effect.objects.values_list("name", flat=True)) == committed
    keys = [(job.args or [job.kwargs["key"]])[0] for job in Job.objects.all()]
    assert sorted(keys) == sorted([*committed, "taken"])
