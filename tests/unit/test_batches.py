"""Going through rows batch by batch: what commits, what is refused, and where it goes on."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.db.models import F

from django_reliable_jobs.exceptions import InvalidBatches, LeaseLost
from django_reliable_jobs.models import Checkpoint
from tests import batch_tasks, tasks
from tests.claims import RETRY, claim_one_as, end, replace
from tests.items import a_context, context_of, gone_through, some_items, state, touched
from tests.models import Item
from tests.recorded import run_jobs

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("around_the_job")]


class TestRows:
    def test_each_row_is_in_one_batch(self) -> None:
        items = some_items(25)
        assert gone_through(a_context(), Item.objects.all(), size=10) == [items[:10], items[10:20], items[20:]]

    def test_a_queryset_without_rows_has_no_batch(self) -> None:
        context = a_context()
        batches = context.batches(Item.objects.all())
        assert list(batches) == []
        assert (batches.done, batches.skipped, batches.total) == (0, 0, 0)

    def test_a_full_last_batch_is_followed_by_none(self) -> None:
        some_items(20)
        assert [len(batch) for batch in gone_through(a_context(), Item.objects.all(), size=10)] == [10, 10]

    def test_rows_that_come_later_do_not_make_it_endless(self) -> None:
        some_items(10)
        seen = 0
        for number, batch in enumerate(a_context().batches(Item.objects.all(), size=2)):
            with batch:
                seen += len(batch)
                some_items(2, first=100 + 2 * number)
        assert seen == 10

    def test_the_end_is_where_the_first_attempt_found_it(self) -> None:
        some_items(4)
        tasks.nothing.enqueue()
        first = claim_one_as(1)
        with pytest.raises(ValueError, match="begin"):
            for batch in context_of(first).batches(Item.objects.all(), size=2):
                with batch:
                    raise ValueError("begin")
        some_items(4, first=100)
        assert end(first, RETRY)
        assert [len(each) for each in gone_through(context_of(claim_one_as(2)), Item.objects.all(), size=2)] == [2, 2]

    def test_rows_deleted_meanwhile_are_left_out_and_nothing_else(self) -> None:
        items = some_items(30)
        seen: list[Item] = []
        for number, batch in enumerate(a_context().batches(Item.objects.all(), size=10)):
            with batch:
                seen += batch
            if number == 0:  # among them the last of the first batch, and the end
                Item.objects.filter(pk__in=[items[n].pk for n in (9, 12, 29)]).delete()
        assert seen == [item for n, item in enumerate(items) if n not in (12, 29)]

    def test_rows_of_the_next_batch_that_a_batch_deletes_are_left_out(self) -> None:
        items = some_items(9)
        seen: list[Item] = []
        for batch in a_context().batches(Item.objects.all(), size=3):
            with batch:
                seen += batch
                Item.objects.filter(place__in=(4, 5)).delete()
        assert seen == [*items[:3], *items[5:]]

    def test_it_ends_when_all_that_was_left_is_deleted(self) -> None:
        some_items(30)
        sizes = []
        for batch in a_context().batches(Item.objects.all(), size=10):
            with batch:
                sizes.append(len(batch))
            Item.objects.all().delete()
        assert sizes == [10, 0]

    def test_the_rows_of_a_batch_are_a_queryset_for_set_based_work(self) -> None:
        some_items(25)
        for batch in a_context().batches(Item.objects.filter(shelf=1), size=5):
            with batch:
                assert batch.rows.update(touched=F("touched") + 1) == len(batch)
        assert touched() == [number % 2 for number in range(1, 26)]

    def test_an_update_that_moves_rows_out_of_the_queryset_hides_none(self) -> None:
        some_items(25)
        for batch in a_context().batches(Item.objects.filter(touched=0), size=10):
            with batch:
                batch.rows.update(touched=1)
        assert touched() == [1] * 25

    def test_rows_may_be_locked(self) -> None:
        items = some_items(3)
        [found] = gone_through(a_context(), Item.objects.select_for_update(), size=10)
        assert found == items

    def test_it_can_be_indexed_and_measured_inside_only(self) -> None:
        items = some_items(3)
        for batch in a_context().batches(Item.objects.all()):
            with batch:
                assert (len(batch), batch[0], batch[-1], batch.items) == (3, items[0], items[2], items)
            assert len(batch) == 3
            for outside in (lambda: list(batch), lambda: batch[0], lambda: batch.rows, lambda: batch.skip(1)):  # noqa: B023
                with pytest.raises(RuntimeError, match="inside"):
                    outside()


class TestCommits:
    def test_a_later_attempt_goes_on_after_the_last_batch_that_was_committed(self) -> None:
        some_items(50)
        job = batch_tasks.touch_until.enqueue(failing_batch=3)
        [ended] = run_jobs()
        assert (ended.pk, ended.status, ended.result) == (job.pk, "SUCCEEDED", 2)
        assert touched() == [1] * 50

    def test_a_batch_that_fails_is_undone_and_the_checkpoint_stays(self) -> None:
        items = some_items(30)
        context = a_context()
        with pytest.raises(ValueError, match="it broke"):
            for number, batch in enumerate(context.batches(Item.objects.all(), size=10)):
                with batch:
                    batch_tasks.touch(batch)
                    if number == 1:
                        raise ValueError("it broke")
        assert touched() == [1] * 10 + [0] * 20
        assert state()["after"] == [items[9].pk]
        assert state()["done"] == 10

    def test_a_replaced_attempt_commits_no_batch_and_its_checkpoint_does_not_go_back(self) -> None:
        some_items(40)
        tasks.nothing.enqueue()
        first = claim_one_as(1)
        loop = iter(context_of(first).batches(Item.objects.all(), size=10))
        with next(loop) as batch:
            batch_tasks.touch(batch)
        second = context_of(replace(first))
        others = iter(second.batches(Item.objects.all(), size=10))
        for _ in range(2):
            with next(others) as batch:
                batch_tasks.touch(batch)
        before = state()
        with pytest.raises(LeaseLost), next(loop) as batch:
            batch_tasks.touch(batch)
        assert state() == before
        assert before["done"] == 30
        assert touched() == [1] * 30 + [0] * 10

    def test_a_replaced_attempt_does_not_begin(self) -> None:
        some_items(4)
        tasks.nothing.enqueue()
        first = claim_one_as(1)
        replace(first)
        with pytest.raises(LeaseLost):
            gone_through(context_of(first), Item.objects.all())
        assert not Checkpoint.objects.exists()

    def test_a_loop_that_was_gone_through_is_not_begun_again(self) -> None:
        some_items(10)
        tasks.nothing.enqueue()
        first = claim_one_as(1)
        assert len(gone_through(context_of(first), Item.objects.all(), size=5)) == 2
        assert end(first, RETRY)
        assert gone_through(context_of(claim_one_as(2)), Item.objects.all(), size=5) == []

    def test_two_loops_of_one_job_have_two_names(self) -> None:
        some_items(4)
        context = a_context()
        assert len(gone_through(context, Item.objects.all())) == 1
        with pytest.raises(InvalidBatches, match=r"a second loop goes by the name 'tests.Item': give it another name="):
            context.batches(Item.objects.all())
        assert len(gone_through(context, Item.objects.all(), name="again")) == 1
        assert state("again")["done"] == 4

    def test_a_batch_that_is_not_entered_stops_the_loop(self) -> None:
        some_items(4)
        with pytest.raises(RuntimeError, match="enter each batch"):
            for _ in a_context().batches(Item.objects.all(), size=2):
                pass
        assert state()["done"] == 0

    def test_a_batch_is_entered_once(self) -> None:
        some_items(4)
        for batch in a_context().batches(Item.objects.all()):
            with batch:
                pass
            with pytest.raises(RuntimeError, match="a batch is entered once"), batch:
                pass

    def test_a_loop_that_swallows_the_error_of_a_batch_is_stopped(self) -> None:
        some_items(4)
        with pytest.raises(RuntimeError, match="a batch failed, and the loop went on"):
            for batch in a_context().batches(Item.objects.all(), size=2):
                try:
                    with batch:
                        raise ValueError("swallowed")
                except ValueError:
                    continue
        assert state()["done"] == 0

    def test_a_batch_that_was_marked_for_rollback_does_not_count(self) -> None:
        some_items(4)
        with pytest.raises(transaction.TransactionManagementError):
            for batch in a_context().batches(Item.objects.all(), size=2):
                with batch:
                    transaction.set_rollback(True)
        assert state()["done"] == 0

    def test_a_transaction_around_the_loop_is_refused(self) -> None:
        some_items(4)
        with pytest.raises(InvalidBatches, match="inside a transaction could commit nothing"), transaction.atomic():
            gone_through(a_context(), Item.objects.all())

    def test_an_atomic_task_is_refused_and_dies_at_once(self) -> None:
        some_items(4)
        batch_tasks.batches_in_an_atomic_task.enqueue()
        [job] = run_jobs()
        assert (job.status, job.attempt) == ("DEAD", 1)
        assert "leave atomic(), and @task(atomic=True), away" in job.reason

    def test_a_job_that_began_by_another_key_says_so(self) -> None:
        some_items(4)
        tasks.nothing.enqueue()
        first = claim_one_as(1)
        gone_through(context_of(first), Item.objects.all())
        assert end(first, RETRY)
        with pytest.raises(InvalidBatches, match=r"began by \['id'\] and can't go on by \['code'\].*--from-start"):
            gone_through(context_of(claim_one_as(2)), Item.objects.all(), by="code")


@pytest.mark.django_db(transaction=True)
def test_on_an_event_loop_it_says_what_to_await() -> None:
    context = a_context()

    async def loop() -> None:
        context.batches(Item.objects.all())

    with pytest.raises(SynchronousOnlyOperation, match=r"context\.batches\(\).*sync_to_async"):
        async_to_sync(loop)()
