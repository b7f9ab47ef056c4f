"""What batches refuse at once, and what of theirs nobody else can write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_reliable_jobs.engine.transaction import around, open_blocks
from django_reliable_jobs.exceptions import InvalidBatches, InvalidCheckpoint
from django_reliable_jobs.models import Checkpoint
from tests.items import a_context, gone_through, some_items, state
from tests.models import Item

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _around_the_job(db: None) -> Iterator[None]:
    """Let the job's own transactions be told from that of the test."""
    reset = around.set(open_blocks())
    yield
    around.reset(reset)


@pytest.mark.parametrize("total", [-1, 1.5, "10", 2**63])
def test_the_total_is_a_number_that_its_column_takes(total: Any) -> None:
    with pytest.raises(InvalidBatches, match=r"total is a whole number from 0 to 9223372036854775807"):
        a_context().batches(Item.objects.all(), total=total)


@pytest.mark.parametrize("name", [5, "n" * 240, "items:skipped"])
def test_a_name_leaves_room_for_the_list_of_what_was_skipped(name: Any) -> None:
    with pytest.raises(InvalidBatches, match="up to 239 characters that does not end with ':skipped'"):
        a_context().batches(Item.objects.all(), name=name)


def test_the_longest_name_has_a_list_of_what_was_skipped() -> None:
    [item] = some_items(1)
    for batch in a_context().batches(Item.objects.all(), name="n" * 239):
        with batch:
            batch.skip(item, "bad")
    assert len(state("n" * 239 + ":skipped")) == 1


def test_a_job_can_not_overwrite_how_far_its_batches_are() -> None:
    some_items(4)
    context = a_context()
    with pytest.raises(InvalidCheckpoint, match="begin with 'batches:' are those of batches"):
        for batch in context.batches(Item.objects.all(), size=2):
            with batch:
                pass
            context.save_checkpoint("batches:tests.Item", 5)
    assert state()["done"] == 2


def test_a_loop_inside_a_batch_of_another_is_refused() -> None:
    some_items(4)
    context = a_context()
    with pytest.raises(InvalidBatches, match="inside a transaction could commit nothing"):
        for batch in context.batches(Item.objects.all(), size=2):
            with batch:
                gone_through(context, Item.objects.all(), name="inner")
    assert state()["done"] == 0
    assert not Checkpoint.objects.filter(name="batches:inner").exists()


@pytest.mark.parametrize("size", [0, -1, 1.5, "10", 2**31])
def test_the_size_is_a_number_from_1_on(size: Any) -> None:
    with pytest.raises(InvalidBatches, match="from 1 on"):
        a_context().batches(Item.objects.all(), size=size)


@pytest.mark.parametrize("source", [[1, 2], "items", Item, Item.objects.raw("SELECT 1")])
def test_it_says_what_it_goes_through(source: Any) -> None:
    with pytest.raises(InvalidBatches, match="a QuerySet, or a function that takes a cursor"):
        a_context().batches(source)
