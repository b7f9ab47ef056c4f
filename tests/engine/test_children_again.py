"""Children that begin again, or whose rows are gone: their parent waits for the first and learns the second."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_reliable_jobs import Batch, emit_event, start_child, start_children, wait_for, wait_for_event
from django_reliable_jobs.engine import claim, endings_of_jobs, exchange, lifecycle, revival
from django_reliable_jobs.engine.claim import Arm
from django_reliable_jobs.exceptions import ChildFailed
from django_reliable_jobs.models import Batch as BatchRow
from django_reliable_jobs.models import Event, Job, Wait
from tests import step_tasks, tasks
from tests.claims import SUCCESS
from tests.engine.test_children import effects, row, run
from tests.engine.test_undo import leaves_by_hand
from tests.recorded import run_jobs
from tests.states import a_worker
from tests.step_tasks import child, child_that_is_ill

pytestmark = pytest.mark.django_db


def has_an_ill_child() -> Any:
    return wait_for(start_child(child_that_is_ill, "a"))


def has_two() -> Any:
    return wait_for([start_child(child_that_is_ill, "a"), start_child(child, "b", "waits")])


def children_of(job: Job) -> list[Any]:
    return list(Job.objects.filter(parent_id=job.pk).order_by("pk"))


class TestRetried:
    def test_a_parent_that_is_retried_with_its_child_waits_for_it(self) -> None:
        job = run(has_an_ill_child)
        assert (job.status, row(children_of(job)[0]).status) == ("DEAD", "DEAD")
        leaves_by_hand("healed")
        revival.revive("default", [job.pk, children_of(job)[0].pk])
        run_jobs()
        assert (row(job).status, row(job).result) == ("SUCCEEDED", "A")

    def test_a_parent_that_waits_for_another_child_waits_for_the_retried_one_too(self) -> None:
        job = run(has_two)
        ill, waiting = children_of(job)
        assert (job.status, ill.status, waiting.status) == ("WAITING", "DEAD", "WAITING")
        leaves_by_hand("healed")
        revival.revive("default", [ill.pk])
        emit_event("for b")
        run_jobs()
        assert (row(job).status, row(job).result) == ("SUCCEEDED", ["A", "B"])

    def test_what_followed_a_batch_does_not_follow_twice(self) -> None:
        batch = Batch(on_finish=step_tasks.follows_a_batch)
        job = batch.enqueue(child_that_is_ill, "a")
        run_jobs()
        leaves_by_hand("healed")
        revival.revive("default", [job.pk])
        run_jobs()
        assert row(job).status == "SUCCEEDED"
        assert effects().count("follows") == 1
        assert batch.progress().succeeded == 1


class TestNewRun:
    def test_what_an_earlier_run_waited_for_does_not_wake_it(self) -> None:
        def flow() -> Any:
            wait_for_event("go")
            return wait_for(start_child(child, "a", "waits"))

        job = run(flow)
        emit_event("go")
        run_jobs()
        lifecycle.cancel("default", [job.pk], reason="no more", children=True)
        Event.objects.all().delete()
        revival.revive("default", [job.pk], from_start=True)
        run_jobs(max_jobs=5)
        assert (row(job).status, row(job).reason) == ("WAITING", "waits for the event go")

    def test_a_wait_of_a_job_that_has_ended_is_no_news(self) -> None:
        step_tasks.waits.enqueue("paid")
        job = run(lambda: wait_for(start_child(child, "a", "waits")))
        lifecycle.cancel("default", list(Job.objects.values_list("pk", flat=True)), reason="")
        emit_event("paid")
        run_jobs()
        assert row(job).status == "CANCELLED"
        assert Wait.objects.exists()
        assert not Wait.objects.filter(is_satisfied=True).exists()
        assert not claim.look("default").has_news


class TestDeleted:
    def flow(self) -> int:
        children = start_children(child, [{"name": "a"}, {"name": "b", "ending": "waits"}])
        wait_for(children)
        return len(list(children.results()))

    def test_of_many_children_none_is_missing_without_a_word(self) -> None:
        job = run(self.flow)
        Job.objects.filter(parent_id=job.pk, status="WAITING").delete()
        endings_of_jobs.finish_missed("default")
        run_jobs()
        assert row(job).status == "DEAD"
        assert row(job).reason == "a child failed: some ended deleted: rows that are gone: 1"

    def test_nor_if_their_batch_is_gone_as_well(self) -> None:
        job = run(self.flow)
        Job.objects.filter(parent_id=job.pk).delete()
        BatchRow.objects.all().delete()
        Wait.objects.update(is_satisfied=True)
        run_jobs()
        assert row(job).reason == "a child failed: some ended deleted: rows that are gone: 2"

    def test_nor_if_their_rows_go_between_the_wait_and_the_reading(self) -> None:
        told = []

        def flow() -> None:
            children = start_children(child, [{"name": "a"}, {"name": "b"}])
            wait_for(children)
            Job.objects.filter(parent_id=step_tasks.current_job().id, kwargs__name="a").delete()
            try:
                list(children.results())
            except ChildFailed as error:
                told.extend(error.failures)

        assert run(flow).status == "SUCCEEDED"
        assert told == [{"job": None, "status": "deleted", "reason": "rows that are gone: 1"}]


class TestBatch:
    def test_one_that_got_no_job_but_duplicates_has_ended_at_once(self) -> None:
        tasks.unique.using(run_after=timedelta(days=1)).enqueue("taken")
        Batch(on_finish=step_tasks.follows_a_batch).enqueue_many(tasks.unique, [{"key": "taken"}])
        run_jobs()
        assert effects() == ["follows"]

    def test_it_is_looked_at_when_no_further_job_of_it_is_claimed(self) -> None:
        batch = Batch(on_finish=step_tasks.follows_a_batch)
        batch.enqueue_many(child, [{"name": name} for name in "abc"])
        worker, looks = a_worker(1), []
        _, [job] = exchange.exchange("default", worker, [], [Arm("default", 0, 1)], limit=1, free=1)
        claimed = [job]
        while claimed:
            ending = lifecycle.Ending(claimed[0].id, claimed[0].token, SUCCESS, batch_id=claimed[0].batch_id)
            with CaptureQueriesContext(connection) as queries:
                _, claimed = exchange.exchange("default", worker, [ending], [Arm("default", 0, 1)], limit=1, free=1)
            looks.append(any("FROM django_reliable_jobs_batch" in query["sql"] for query in queries.captured_queries))
            claimed = [each for each in claimed if each.task == child.name]
        assert looks == [False, False, True]
        assert BatchRow.objects.get().succeeded == 3
        assert Job.objects.filter(task=step_tasks.follows_a_batch.name).count() == 1

    def test_a_block_that_was_rolled_back_may_be_entered_again(self) -> None:
        batch = Batch()
        with pytest.raises(RuntimeError), batch:
            batch.enqueue(child, "a")
            raise RuntimeError
        with batch:
            batch.enqueue(child, "b")
        assert [job.kwargs or job.args for job in Job.objects.all()] == [["b"]]
        assert Job.objects.get().batch_id == batch.id == BatchRow.objects.get().pk
