"""What batches tell and keep: progress, skipped items, how they end, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs import batches
from django_reliable_jobs.context import StopFlag
from django_reliable_jobs.engine.progress import standing_of
from django_reliable_jobs.engine.revival import revive
from django_reliable_jobs.exceptions import LeaseLost, Stopping
from django_reliable_jobs.models import Job, Progress
from tests import batch_tasks, tasks
from tests.batch_tasks import numbers
from tests.claims import RETRY, claim_one_as, end
from tests.items import a_context, context_of, gone_through, some_items, state, touched
from tests.models import Effect, Item
from tests.recorded import run_jobs

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("around_the_job")]


class TestSkipped:
    def test_skipped_items_are_kept_and_the_job_goes_on(self) -> None:
        items = some_items(35)
        batch_tasks.skip_odd.enqueue()
        [job] = run_jobs()
        assert (job.status, job.result) == ("SUCCEEDED", {"done": 35, "skipped": 18})
        assert touched() == [1 - number % 2 for number in range(1, 36)]
        kept = state("tests.Item:skipped")
        assert len(kept) == 18
        assert kept[-1] == {"item": f"Item {items[34].pk}", "error": "ValueError: place 35"}
        assert Progress.objects.get(job=job).skipped == 18

    def test_the_list_is_capped_and_the_count_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batches, "MOST_SKIPPED", 7)
        loop = a_context().batches(numbers(30), size=5, name="numbers")
        for batch in loop:
            with batch:
                for number in batch:
                    batch.skip(number, f"bad\0 {number}" + "x" * 10_000)
        assert (loop.done, loop.skipped) == (30, 30)
        kept = state("numbers:skipped")
        assert [each["item"] for each in kept] == ["1", "2", "3", "4", "5", "6", "7"]
        assert kept[0]["error"].startswith("bad\ufffd 1x")
        assert len(kept[0]["error"]) == batches.LONGEST_ERROR

    def test_long_errors_leave_room_for_fewer_and_never_fail_the_job(self, settings: Any) -> None:
        settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "MAX_RESULT_BYTES": 20_000}
        loop = a_context().batches(numbers(30), size=5, name="numbers")
        for batch in loop:
            with batch:
                for number in batch:
                    batch.skip(number, "\N{SNOWMAN}" * 1000)
        assert loop.skipped == 30
        assert len(state("numbers:skipped")) == 3

    def test_what_a_batch_that_fails_has_skipped_does_not_count(self) -> None:
        context = a_context()
        with pytest.raises(ValueError, match="it broke"):
            for batch in context.batches(numbers(30), size=5, name="numbers"):
                with batch:
                    batch.skip(batch[0], "bad")
                    if batch[0] > 5:
                        raise ValueError("it broke")
        assert state("numbers")["skipped"] == 1
        assert [each["item"] for each in state("numbers:skipped")] == ["1"]


class TestEnds:
    @pytest.mark.parametrize(("reason", "kind"), [("shutdown", Stopping), ("cancel", Stopping), ("lost", LeaseLost)])
    def test_it_stops_between_two_batches(self, reason: Any, kind: type[BaseException]) -> None:
        some_items(30)
        flag = StopFlag()
        with pytest.raises(kind):
            for batch in a_context(flag).batches(Item.objects.all(), size=10):
                with batch:
                    batch_tasks.touch(batch)
                    flag.reason = reason
        assert touched() == [1] * 10 + [0] * 20
        assert flag.was_seen

    def test_it_does_not_stop_when_all_is_done(self) -> None:
        some_items(10)
        flag = StopFlag()
        for batch in a_context(flag).batches(Item.objects.all(), size=10):
            with batch:
                flag.reason = "cancel"
        assert state()["done"] == 10

    def test_after_its_run_time_the_job_goes_to_the_end_of_its_line_and_goes_on_later(self) -> None:
        some_items(30)
        job, other = batch_tasks.in_portions.enqueue(), tasks.effect.enqueue("between")
        assert [each.pk for each in run_jobs()] == [job.pk, other.pk]
        job.refresh_from_db()
        assert (job.status, job.result, job.attempt, job.claims) == ("SUCCEEDED", 3, 1, 3)
        assert touched() == [1] * 30
        assert [(each.outcome, each.number) for each in job.attempts.all()] == [("interrupted", 1)] * 2
        assert "max_run_time of 0 s" in job.attempts.all()[0].error_message
        assert Effect.objects.get().at < job.finished_at
        assert Job.objects.get(pk=other.pk).started_at < job.started_at

    def test_a_job_started_over_from_its_start_begins_anew(self) -> None:
        some_items(10)
        tasks.nothing.enqueue()
        first = claim_one_as(1)
        gone_through(context_of(first), Item.objects.all(), size=5)
        assert end(first, RETRY)
        Job.objects.filter(pk=first.id).update(run=2)
        assert len(gone_through(context_of(claim_one_as(2)), Item.objects.all(), size=5)) == 2

    def test_a_run_from_the_start_does_all_again_and_has_nothing_of_the_one_before(self) -> None:
        some_items(10)
        job = batch_tasks.skip_odd.enqueue(size=5)
        run_jobs()
        Item.objects.filter(place__gt=4).delete()
        assert revive("default", [job.pk], from_start=True).revived == [job.pk]
        job.refresh_from_db()
        empty = standing_of("default", job)
        assert (empty.progress, empty.loops, empty.checkpoint) == (None, [], None)
        [ended] = run_jobs()
        assert (ended.run, ended.result) == (2, {"done": 4, "skipped": 2})
        [loop] = standing_of("default", ended).loops
        assert (loop.done, loop.skipped, len(loop.faults)) == (4, 2, 2)
        assert touched() == [0, 2, 0, 2]


class TestProgress:
    def test_it_tells_how_many_are_done_of_how_many(self) -> None:
        some_items(25)
        context = a_context()
        seen = []
        for batch in context.batches(Item.objects.all(), size=10):
            seen.append(context._progress.said)
            with batch:
                pass
        assert [(said.done, said.total) for said in seen if said] == [(0, 25), (10, 25), (20, 25)]
        assert context._progress.said == (25, 25, "", 0)

    def test_a_total_that_is_given_is_not_counted(self, django_assert_num_queries: Any) -> None:
        context = a_context()
        # load, the last key, save, and for the one batch: savepoint, limit, read, save, release
        some_items(5)
        with django_assert_num_queries(8):
            for batch in context.batches(Item.objects.all(), total=1000):
                assert context._progress.said == (0, 1000, "", 0)
                with batch:
                    pass

    def test_more_rows_than_were_estimated_move_the_total(self) -> None:
        some_items(5)
        context = a_context()
        loop = context.batches(Item.objects.all(), total=3, size=2)
        totals = []
        for batch in loop:
            with batch:
                pass
            totals.append(loop.total)
        assert totals == [3, 4, 5]


@pytest.mark.django_db(transaction=True)
def test_with_debug_the_log_of_queries_does_not_grow_with_the_job(settings: Any) -> None:
    settings.DEBUG = True
    some_items(40)
    lengths = []
    for batch in a_context().batches(Item.objects.all(), size=2):
        lengths.append(len(connection.queries_log))
        with batch:
            batch_tasks.touch(batch)
    assert len(lengths) == 20
    assert max(lengths[1:]) == 0


@pytest.mark.django_db(transaction=True)
def test_a_batch_costs_its_transaction_a_limit_the_read_and_the_checkpoint(django_assert_num_queries: Any) -> None:
    some_items(4)
    context = a_context()
    loop = iter(context.batches(Item.objects.all(), size=2))
    batch = next(loop)
    with django_assert_num_queries(5), batch:  # BEGIN, limit, read, checkpoint, COMMIT
        pass
    connection.close()
