"""A child that begins again while its sibling ends, and families that are cancelled while others end."""

from __future__ import annotations

from typing import Any

import pytest

from django_reliable_jobs.engine import families, lifecycle, revival, waits
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.models import Batch as BatchRow
from django_reliable_jobs.models import Job
from tests.actors import on_stage, wait_until_blocked
from tests.claims import DEATH, claim_one_as, end
from tests.concurrency.test_family_races import Family, succeed
from tests.step_tasks import child

pytestmark = pytest.mark.django_db(transaction=True)


class Waiting(Family):
    """The parent waits, and the first child has died."""

    def __init__(self) -> None:
        super().__init__(is_one_batch=True)
        self.asks()
        self.waits()
        assert end(self.children[0], DEATH)

    @property
    def goes_on(self) -> bool:
        waits.wake_all("default")
        return self.status == "READY"


def test_a_parent_waits_for_a_child_that_is_retried_while_its_sibling_ends() -> None:
    family = Waiting()
    with on_stage("person", "worker") as [person, worker]:
        person.begins()
        assert person.does(revival.revive, "default", [family.children[0].id]).revived == [family.children[0].id]
        late = worker.starts(succeed, family.children[1])
        wait_until_blocked(worker)  # at the row of the batch
        person.commits()
        late.result(timeout=60)
    assert BatchRow.objects.get().finished_at is None
    assert not family.goes_on
    assert succeed(claim_one_as(9))
    assert family.goes_on


def test_it_waits_for_it_too_if_the_sibling_ended_a_moment_before() -> None:
    family = Waiting()
    with on_stage("person", "worker") as [person, worker]:
        worker.begins()
        worker.does(succeed, family.children[1])
        late = person.starts(revival.revive, "default", [family.children[0].id])
        wait_until_blocked(person)
        worker.commits()
        late.result(timeout=60)
    assert BatchRow.objects.get().finished_at is None


def test_a_family_that_is_cancelled_locks_batches_in_the_order_in_which_others_do() -> None:
    family = Family(is_one_batch=True)
    [own] = family.batches
    other = families.create("default")
    Job.objects.filter(pk=family.parent.id).update(batch_id=other)
    BatchRow.objects.filter(pk=own).update(id=other + 1)  # what is made later is finished later
    Job.objects.filter(batch_id=own).update(batch_id=other + 1)
    lifecycle.cancel("default", [family.parent.id], reason="no more", children=True)
    put_back(family.children)
    with on_stage("worker", "another") as [worker, another]:
        another.begins()
        assert another.does(families.lock, "default", [other]) == {other}
        late = worker.starts(end, family.parent, DEATH)
        wait_until_blocked(worker)
        assert another.does(families.lock, "default", [other + 1]) == {other + 1}
        another.commits()
        assert late.result(timeout=60)
    assert set(Job.objects.values_list("status", flat=True)) == {"CANCELLED"}


def put_back(jobs: list[ClaimedJob]) -> Any:
    Job.objects.filter(pk__in=[job.id for job in jobs], task=child.name).update(status="READY")
