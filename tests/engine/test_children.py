"""Jobs that start jobs and wait for them, and batches, in the test's own thread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from django_reliable_jobs import Batch, current_job, start_child, start_children, wait_for
from django_reliable_jobs.engine import children, endings_of_jobs, lifecycle, maintenance, waits
from django_reliable_jobs.exceptions import BatchFinished, ChildFailed, InvalidTask
from django_reliable_jobs.models import Batch as BatchRow
from django_reliable_jobs.models import Job, Wait
from tests import step_tasks
from tests.claims import claim_one_as, let_lease_run_out
from tests.models import Effect
from tests.recorded import run_jobs
from tests.step_tasks import atomic_child, child, follows_a_batch, follows_failure, follows_success

pytestmark = pytest.mark.django_db


def row(job: Job) -> Any:
    return Job.objects.get(pk=job.pk)


def effects() -> list[str]:
    return list(Effect.objects.order_by("pk").values_list("name", flat=True))


def run(flow: Callable[[], Any]) -> Any:
    step_tasks.flow = flow
    job = step_tasks.follows.enqueue()
    run_jobs()
    return row(job)


class TestChildren:
    def test_a_parent_gets_the_result_of_its_child_and_holds_no_worker_meanwhile(self) -> None:
        job = step_tasks.has_one_child.enqueue()
        run_jobs()
        parent = row(job)
        assert (parent.status, parent.result, parent.attempt, parent.claims) == ("SUCCEEDED", ["of", "A"], 1, 2)
        started = Job.objects.get(task=child.name)
        assert (started.parent_id, started.status) == (job.pk, "SUCCEEDED")
        assert not Wait.objects.exists()

    def test_results_come_in_the_given_order_and_each_child_is_started_once(self) -> None:
        job = step_tasks.has_children.enqueue(["c", "a", "b"])
        run_jobs()
        assert row(job).result == ["C", "A", "B"]
        assert sorted(effects()) == ["between", "child a", "child b", "child c"]

    def test_a_replay_starts_no_child_again(self) -> None:
        def flow() -> Any:
            one = start_child(child, "a")
            if current_job().attempt == 1:
                raise ValueError("once")
            return [one.id, wait_for(one)]

        job = run(flow)
        assert job.result == [Job.objects.get(task=child.name).pk, "A"]

    def test_a_child_is_enqueued_with_its_record_or_not_at_all(self) -> None:
        def flow() -> None:
            start_child(child, {1})

        job = run(flow)
        assert job.status == "DEAD"
        assert "is a set" in job.reason
        assert not BatchRow.objects.exists()

    @pytest.mark.parametrize(
        ("ending", "status", "reason"),
        [("dies", "DEAD", "ValueError: a is ill"), ("is cancelled", "CANCELLED", "a does not want to")],
    )
    def test_a_child_that_failed_is_told_in_every_replay(self, ending: str, status: str, reason: str) -> None:
        told = []

        def flow() -> str:
            try:
                wait_for(start_child(child, "a", ending))
            except ChildFailed as failed:
                told.append(failed.failures)
            if current_job().attempt == 1:
                raise ValueError("once")
            return "another way"

        job = run(flow)
        assert job.result == "another way"
        [started] = Job.objects.filter(task=child.name)
        assert told == [[{"job": started.pk, "status": status, "reason": reason}]] * 2

    def test_a_failure_that_is_not_caught_ends_the_parent(self) -> None:
        job = step_tasks.has_one_child.enqueue("dies")
        run_jobs()
        assert (row(job).status, row(job).attempt) == ("DEAD", 1)
        assert "a child failed: job" in row(job).reason
        assert "a is ill" in row(job).reason

    def test_many_children_are_one_step_and_are_read_by_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(children, "PAGE", 10)
        job = step_tasks.has_many_children.enqueue(25)
        run_jobs()
        assert row(job).result == [25, sum(range(25))]
        assert row(job).checkpoints.count() == 2

    def test_no_children_are_no_wait(self) -> None:
        job = run(lambda: [wait_for([]), list(wait_for(start_children(child, [])))])
        assert job.result == [[], []]
        assert job.claims == 1

    def test_children_that_have_ended_before_are_no_wait(self) -> None:
        def flow() -> Any:
            one = start_child(child, "a")
            step_tasks.sleep("nap", 10)
            return wait_for(one)

        job = run(flow)
        run_jobs(until=timedelta(seconds=11))
        assert (row(job).result, row(job).claims) == ("A", 2)

    @pytest.mark.parametrize("ending", ["", "dies"])
    def test_children_that_have_ended_before_are_known_to_a_replay(self, ending: str) -> None:
        def flow() -> Any:
            one = start_child(child, "a", ending)
            step_tasks.sleep("nap", 10)
            try:
                result = wait_for(one)
            except ChildFailed:
                result = "none"
            step_tasks.sleep("another nap", 10)
            return [result, list(wait_for(start_children(child, []))), step_tasks.sleep("and another", 10)]

        job = run(flow)
        run_jobs(until=timedelta(seconds=40))
        assert row(job).result == ["none" if ending else "A", [], None]

    def test_an_atomic_child_wakes_its_parent(self) -> None:
        assert run_to_end(lambda: wait_for(start_child(atomic_child, "a"))).result == "A"

    def test_a_child_may_have_another_queue(self) -> None:
        run(lambda: start_child(child.using(queue_name="other"), "a").id)
        assert Job.objects.get(task=child.name).queue_name == "other"

    def test_what_is_no_child_is_refused(self) -> None:
        for given in ([7], 7, Job()):
            job = run(lambda given=given: wait_for(given))  # type: ignore[misc]
            assert "wait_for() takes what start_child()" in job.reason

    def test_results_that_are_too_large_name_the_way_out(self, settings: Any) -> None:
        settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "MAX_RESULT_BYTES": 120}
        job = run(lambda: wait_for([start_child(child, "x" * 100) for _ in range(2)]))
        assert "start_children() keeps them with the children" in job.reason


class TestParentLearns:
    def parent(self) -> Any:
        job = step_tasks.has_one_child.enqueue("waits")
        run_jobs()
        assert row(job).status == "WAITING"
        return job, Job.objects.get(task=child.name)

    def test_that_a_waiting_child_was_cancelled(self) -> None:
        job, started = self.parent()
        lifecycle.cancel("default", [started.pk], reason="no more")
        run_jobs()
        assert "ended CANCELLED: no more" in row(job).reason

    def test_that_a_child_was_deleted(self) -> None:
        job, started = self.parent()
        started.delete()
        endings_of_jobs.finish_missed("default")
        run_jobs()
        assert "ended deleted: its row is gone" in row(job).reason

    def test_that_a_child_was_lost_and_died(self) -> None:
        job = step_tasks.has_one_child.enqueue()
        step_tasks.flow = None
        claimed = claim_one_as(1)
        run_parent_until_it_waits(claimed)
        lost = claim_one_as(2)
        let_lease_run_out(lost)
        maintenance.rescue("default")
        run_jobs()
        assert row(job).status == "DEAD"
        assert "max_attempts=1 allows no second start" in row(job).reason

    def test_nothing_of_a_child_is_pruned_before_its_parent_has_ended(self) -> None:
        job, started = self.parent()
        lifecycle.cancel("default", [started.pk], reason="no more")
        Job.objects.filter(pk=started.pk).update(finished_at=timezone.now() - timedelta(days=30))
        assert maintenance.prune("default") == 0
        run_jobs()
        Job.objects.filter(pk=job.pk).update(status="CANCELLED", finished_at=timezone.now())
        assert maintenance.prune("default") == 1

    def test_the_truth_finds_what_was_missed(self) -> None:
        job, started = self.parent()
        Job.objects.filter(pk=started.pk).update(status="SUCCEEDED", finished_at=timezone.now(), result="by hand")
        endings_of_jobs.finish_missed("default")
        Wait.objects.filter(job=job).update(is_satisfied=False)
        assert waits.wake_all("default") == 1
        run_jobs()
        assert row(job).result == ["of", "by hand"]

    def test_a_cancel_reaches_children_if_asked(self) -> None:
        job, started = self.parent()
        done = lifecycle.cancel("default", [job.pk], reason="no more", children=True)
        assert set(done.cancelled) == {job.pk, started.pk}

    def test_a_cancel_spares_children_if_not_asked(self) -> None:
        job, started = self.parent()
        assert lifecycle.cancel("default", [job.pk], reason="no more").cancelled == [job.pk]
        assert row(started).status == "WAITING"


class TestBatch:
    def followed(self) -> Batch:
        return Batch(on_success=follows_success, on_failure=follows_failure, on_finish=follows_a_batch)

    def test_tasks_follow_when_all_have_succeeded(self) -> None:
        batch = self.followed()
        batch.enqueue_many(child, [{"name": "a"}, {"name": "b"}])
        assert batch.progress().live == 2
        run_jobs()
        assert effects() == ["child a", "child b", "success", "follows"]
        progress = batch.progress()
        assert (progress.total, progress.succeeded, progress.failed, progress.is_finished) == (2, 2, 0, True)
        assert Job.objects.get(task=follows_a_batch.name).kwargs == {"batch_id": batch.id}

    @pytest.mark.parametrize("ending", ["dies", "is cancelled"])
    def test_other_tasks_follow_when_one_has_failed(self, ending: str) -> None:
        batch = self.followed()
        batch.enqueue(child, "a", ending)
        batch.enqueue(child, "b")
        run_jobs()
        assert effects() == ["child a", "child b", "failure", "follows"]
        assert batch.progress().failed == 1
        stored = BatchRow.objects.get(pk=batch.id)
        assert (stored.succeeded, stored.failed) == (1, 1)

    def test_nothing_follows_before_the_last_has_ended(self) -> None:
        batch = self.followed()
        batch.enqueue(child, "a")
        batch.enqueue(child, "b", "waits")
        run_jobs()
        assert effects() == ["child a", "child b"]
        lifecycle.cancel("default", [Job.objects.get(status="WAITING").pk], reason="")
        run_jobs()
        assert effects() == ["child a", "child b", "failure", "follows"]

    def test_a_block_is_one_transaction(self) -> None:
        with pytest.raises(RuntimeError), self.followed() as batch:
            batch.enqueue(child, "a")
            raise RuntimeError
        assert not Job.objects.exists()
        assert not BatchRow.objects.exists()

    def test_an_empty_batch_has_ended_at_once(self) -> None:
        with self.followed():
            pass
        self.followed().enqueue_many(child, [])
        run_jobs()
        assert effects() == ["success", "follows", "success", "follows"]

    def test_a_batch_that_has_ended_takes_no_more(self) -> None:
        batch = self.followed()
        batch.enqueue(child, "a")
        run_jobs()
        with pytest.raises(BatchFinished, match=f"batch {batch.id} has ended"):
            batch.enqueue(child, "b")

    def test_a_batch_is_found_by_its_id(self) -> None:
        batch = self.followed()
        batch.enqueue(child, "a")
        assert batch.id is not None
        Batch.get(batch.id).enqueue(child, "b")
        assert Batch.get(batch.id).progress().total == 2

    def test_jobs_with_choices_of_their_own_belong_to_it(self) -> None:
        batch = Batch()
        batch.enqueue(child.using(queue_name="other", run_after=timedelta(hours=1)), "a")
        assert Job.objects.get().batch_id == batch.id
        assert Job.objects.get().queue_name == "other"

    def test_a_follower_that_is_gone_stops_nothing(self) -> None:
        batch = Batch(on_finish="no.such.task")
        batch.enqueue(child, "a")
        run_jobs()
        assert Job.objects.filter(task="no.such.task").exists()

    def test_what_is_no_task_does_not_follow(self) -> None:
        with pytest.raises(InvalidTask, match="on_finish"):
            Batch(on_finish=print)  # type: ignore[arg-type]

    def test_it_is_part_of_the_callers_transaction(self) -> None:
        batch = self.followed()
        with pytest.raises(RuntimeError), transaction.atomic():
            batch.enqueue(child, "a")
            raise RuntimeError
        assert not BatchRow.objects.exists()


def run_to_end(flow: Callable[[], Any]) -> Any:
    return run(flow)


def run_parent_until_it_waits(claimed: Any) -> None:
    """Run a claimed parent in this thread, and record that it waits."""
    from django_reliable_jobs.context import StopFlag
    from django_reliable_jobs.engine import transaction as engine_transaction
    from django_reliable_jobs.processes.execution import call_here, execute

    reset = engine_transaction.around.set(engine_transaction.open_blocks())
    outcome = execute(claimed, StopFlag(), using="default", call=call_here, leave=lambda: None)
    engine_transaction.around.reset(reset)
    lifecycle.end("default", [lifecycle.Ending(claimed.id, claimed.token, outcome)], worker="test:0")
