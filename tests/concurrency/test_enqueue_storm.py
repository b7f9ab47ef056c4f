"""Many callers with overlapping keys at the same time: no deadlock, no broken transaction, one live job per key."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction

from django_reliable_jobs.engine import insert
from django_reliable_jobs.models import Job
from tests.actors import on_stage
from tests.engine.test_unique import keeps, postpones, replaces

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 50
KEYS = 30


def enqueue_some(function: Any, order_ids: list[int], commits: bool) -> dict[int, bool] | None:
    """Enqueue in one transaction; return which keys made a job, or None after a rollback."""
    with transaction.atomic():
        jobs = function.enqueue_many([{"order_id": order_id} for order_id in order_ids])
        assert [job.kwargs["order_id"] for job in jobs] == order_ids
        assert Job.objects.filter(pk__in={job.pk for job in jobs}).count() == len(set(order_ids)), "usable"
        transaction.set_rollback(not commits)
    return {job.kwargs["order_id"]: job.created for job in jobs if commits} or None


@pytest.mark.parametrize("function", [keeps, replaces, postpones])
@pytest.mark.parametrize("chunk", [3, 5000], ids=["more keys than a chunk", "fewer keys than a chunk"])
def test_callers_of_overlapping_keys_never_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, function: Any, chunk: int
) -> None:
    monkeypatch.setattr(insert, "CHUNK", chunk)
    generator = random.Random(chunk)
    with on_stage("one", "two", "three") as actors:
        for _ in range(ROUNDS):
            before = {job.kwargs["order_id"] for job in Job.objects.all()}
            samples = [generator.sample(range(KEYS), generator.randrange(2, 25)) for _ in actors]
            plans = [(sample, generator.random() < 0.7) for sample in samples]
            answers = [actor.starts(enqueue_some, function, *plan) for actor, plan in zip(actors, plans, strict=True)]
            made = Counter(
                order_id for answer in answers for order_id, created in (answer.result(60) or {}).items() if created
            )
            wanted = {order_id for sample, commits in plans for order_id in sample if commits}
            assert made == Counter(wanted - before), "each new key was made once"
            assert sorted(job.kwargs["order_id"] for job in Job.objects.all()) == sorted(before | wanted)
            Job.objects.filter(pk__in=generator.sample(list(Job.objects.values_list("pk", flat=True)), k=5)).delete()


def test_of_many_callers_in_autocommit_one_makes_the_job() -> None:
    def enqueue(order_id: int) -> bool:
        try:
            return keeps.enqueue(order_id).created
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        for order_id in range(ROUNDS):
            assert Counter(threads.map(enqueue, [order_id] * 6)) == {True: 1, False: 5}
    assert Job.objects.count() == ROUNDS
