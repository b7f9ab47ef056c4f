"""Going through items with cursors in batches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from django_reliable_jobs.engine.transaction import around, open_blocks
from django_reliable_jobs.exceptions import InvalidBatches, InvalidCheckpoint
from tests import batch_tasks, tasks
from tests.batch_tasks import numbers
from tests.claims import RETRY, claim_one_as, end
from tests.items import a_context, context_of, gone_through, some_items, state
from tests.models import Effect, Item
from tests.recorded import run_jobs

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _around_the_job(db: None) -> Iterator[None]:
    """Let the job's own transactions be told from that of the test."""
    reset = around.set(open_blocks())
    yield
    around.reset(reset)


class TestCursors:
    def test_items_of_a_function_come_in_batches_with_their_cursors(self) -> None:
        assert gone_through(a_context(), numbers(7), size=3, name="numbers") == [[1, 2, 3], [4, 5, 6], [7]]
        assert state("numbers") == {"after": 7, "done": 7, "skipped": 0, "total": None}

    def test_a_later_attempt_asks_from_the_last_cursor_on(self) -> None:
        batch_tasks.count_numbers.enqueue(55, failing=33)
        [job] = run_jobs()
        assert (job.status, job.result, job.attempt) == ("SUCCEEDED", 55, 2)
        names = [int(name) for name in Effect.objects.order_by("pk").values_list("name", flat=True)]
        assert names == list(range(1, 56))
        assert Effect.objects.filter(attempt=1).count() == 30

    def test_what_is_asked_for_is_closed_when_the_loop_fails(self) -> None:
        closed = []

        def after(cursor: Any) -> Iterator[tuple[int, int]]:
            try:
                for number in range(100):
                    yield number, number
            finally:
                closed.append(cursor)

        with pytest.raises(ValueError, match="it broke"):
            for batch in a_context().batches(after, size=3):
                with batch:
                    raise ValueError("it broke")
        gc.collect()
        assert closed == [None]

    @pytest.mark.parametrize("cursor", [{1, 2}, object(), float("nan"), "x" * 300_000])
    def test_a_cursor_that_can_not_be_kept_is_a_clear_error_and_the_earlier_stays(self, cursor: Any) -> None:
        def after(_: Any) -> Iterator[tuple[int, Any]]:
            yield 1, "first"
            yield 2, cursor

        with pytest.raises(InvalidCheckpoint, match="batches:after"):
            for batch in a_context().batches(after, size=1, name="after"):
                with batch:
                    Effect.objects.create(name=str(batch[0]))
        assert state("after")["after"] == "first"
        assert list(Effect.objects.values_list("name", flat=True)) == ["1"]

    def test_the_cursor_none_is_refused_as_a_later_attempt_would_begin_at_the_start(self) -> None:
        with pytest.raises(InvalidBatches, match="the cursor None means the start"):
            gone_through(a_context(), lambda _: iter([(1, 1), (2, None)]), name="numbers")
        assert state("numbers")["done"] == 0

    @pytest.mark.parametrize("given", [None, 5, [1, 2], [(1, 2, 3)]])
    def test_what_is_no_pairs_is_said(self, given: Any) -> None:
        with pytest.raises(InvalidBatches, match=r"\(item, cursor\) pairs, .*not"):
            gone_through(a_context(), lambda _: given, name="numbers")

    def test_a_loop_over_rows_does_not_go_on_by_cursors_nor_the_other_way_round(self) -> None:
        some_items(4)
        for one, other in ((Item.objects.all(), numbers(4)), (numbers(4), Item.objects.all())):
            job = tasks.nothing.enqueue()
            first = claim_one_as(1)
            gone_through(context_of(first), one, name="loop")
            assert end(first, RETRY)
            second = claim_one_as(2)
            with pytest.raises(InvalidBatches, match=r"began by .* and can't go on by .*--from-start"):
                gone_through(context_of(second), other, name="loop")
            assert end(second, RETRY)
            job.delete()

    def test_its_batches_have_no_queryset(self) -> None:
        for batch in a_context().batches(numbers(3)):
            with batch, pytest.raises(InvalidBatches, match="if it comes from a queryset"):
                _ = batch.rows
