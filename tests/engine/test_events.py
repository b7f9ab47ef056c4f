"""Sleeps, events and waits, in jobs that run in the test's own thread and with its clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from django_reliable_jobs import current_job, emit_event, sleep, step, wait_for_event
from django_reliable_jobs.engine import claim, events, lifecycle, maintenance, revival, waits
from django_reliable_jobs.exceptions import EventTimeout, InvalidArguments
from django_reliable_jobs.models import Attempt, Checkpoint, Event, Job, Wait
from django_reliable_jobs.testing import at
from tests import step_tasks
from tests.models import Effect
from tests.recorded import run_jobs
from tests.step_tasks import leaves

pytestmark = pytest.mark.django_db


def run(flow: Callable[[], Any]) -> Any:
    step_tasks.flow = flow
    job = step_tasks.follows.enqueue()
    run_jobs()
    return row(job)


def row(job: Job) -> Any:
    return Job.objects.get(pk=job.pk)


def go_on(job: Job, seconds: float) -> Any:
    with at(timezone.now() + timedelta(seconds=seconds)):
        run_jobs()
    return row(job)


class TestSleep:
    def test_it_gives_the_worker_back_and_goes_on_when_the_time_has_come(self) -> None:
        job = step_tasks.naps.enqueue(3 * 86_400)
        run_jobs()
        waiting = row(job)
        assert (waiting.status, waiting.attempt, waiting.reason) == ("WAITING", 0, "sleeps: nap")
        assert go_on(job, 3 * 86_400 - 60).status == "WAITING"
        slept = go_on(job, 3 * 86_400 + 60)
        assert (slept.status, slept.result, slept.attempt, slept.claims) == ("SUCCEEDED", "rested", 1, 2)
        assert list(Effect.objects.order_by("id").values_list("name", flat=True)) == ["before", "after"]
        assert not Attempt.objects.exists()

    def test_a_moment_may_be_given(self) -> None:
        with at(datetime(2026, 3, 1, 12, tzinfo=UTC)):
            job = step_tasks.sleeps_until.enqueue("2026-03-01T12:00:10+00:00")
            run_jobs()
            assert row(job).status == "WAITING"
            assert row(job).run_after == datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)
        with at(datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)):
            run_jobs()
        assert row(job).status == "SUCCEEDED"

    def test_a_moment_that_is_past_is_no_wait(self) -> None:
        job = step_tasks.sleeps_until.enqueue("2020-01-01T00:00:00+00:00")
        run_jobs()
        assert (row(job).status, row(job).claims) == ("SUCCEEDED", 1)

    @pytest.mark.parametrize(
        "span",
        [datetime(2026, 1, 1), None, "3 days", -1, timedelta(days=-1), datetime.max.replace(tzinfo=UTC)],
    )
    def test_what_is_no_span_and_no_aware_moment_is_refused(self, span: Any) -> None:
        step_tasks.flow = lambda: sleep("nap", span)
        job = step_tasks.follows_once.enqueue()
        run_jobs()
        assert row(job).status == "DEAD"

    def test_the_clock_of_a_test_goes_on_to_its_end(self) -> None:
        job = step_tasks.naps.enqueue(3 * 86_400)
        run_jobs(until=timedelta(days=4))
        assert row(job).result == "rested"

    def test_its_length_is_decided_once(self) -> None:
        spans = iter([10, 1000])
        job = run(lambda: sleep("nap", next(spans)))
        assert go_on(job, 11).status == "SUCCEEDED"

    def test_a_job_that_has_begun_does_not_expire_while_it_sleeps(self) -> None:
        job = step_tasks.naps.enqueue(100)
        Job.objects.filter(pk=job.pk).update(expires_at=timezone.now() + timedelta(seconds=50))
        run_jobs()
        assert go_on(job, 101).status == "SUCCEEDED"


class TestEvents:
    def test_one_that_came_before_is_taken_at_once(self) -> None:
        emit_event("shipped:7", {"tracking": "1Z"})
        job = step_tasks.waits.enqueue("shipped:7")
        run_jobs()
        assert (row(job).result, row(job).claims) == ({"tracking": "1Z"}, 1)

    def test_one_that_comes_later_wakes_the_job(self) -> None:
        job = step_tasks.waits.enqueue("shipped:7")
        run_jobs()
        assert (row(job).status, row(job).reason) == ("WAITING", "waits for the event shipped:7")
        emit_event("shipped:8", "another")
        run_jobs()
        assert row(job).status == "WAITING"
        emit_event("shipped:7", [1, None])
        run_jobs()
        assert (row(job).result, row(job).attempt, row(job).claims) == ([1, None], 1, 2)
        assert not Wait.objects.exists()

    def test_nothing_may_be_its_payload(self) -> None:
        emit_event("done")
        job = run(lambda: ["got", wait_for_event("done")])
        assert job.result == ["got", None]

    def test_the_first_stays_and_a_second_changes_nothing(self) -> None:
        assert emit_event("paid", 1) is True
        assert emit_event("paid", 2) is False
        assert run(lambda: wait_for_event("paid")).result == 1

    def test_a_second_one_wakes_nobody_twice(self) -> None:
        job = step_tasks.waits.enqueue("paid")
        run_jobs()
        emit_event("paid", 1)
        run_jobs()
        emit_event("paid", 2)
        run_jobs()
        assert (row(job).result, row(job).claims) == (1, 2)

    def test_it_is_gone_with_a_transaction_that_is_rolled_back(self) -> None:
        job = step_tasks.waits.enqueue("paid")
        run_jobs()
        with pytest.raises(RuntimeError), transaction.atomic():
            emit_event("paid", 1)
            raise RuntimeError
        run_jobs()
        assert row(job).status == "WAITING"
        assert emit_event("paid", 2) is True
        run_jobs()
        assert row(job).result == 2

    def test_two_jobs_may_wait_for_one_event(self) -> None:
        jobs = [step_tasks.waits.enqueue("paid") for _ in range(2)]
        run_jobs()
        emit_event("paid", 5)
        run_jobs()
        assert [(row(job).result, row(job).claims) for job in jobs] == [(5, 2), (5, 2)]

    def test_a_job_may_wait_for_one_event_after_another(self) -> None:
        job = run(lambda: [wait_for_event("first"), wait_for_event("second"), wait_for_event("first")])
        emit_event("second", 2)
        run_jobs()
        assert row(job).status == "WAITING"
        emit_event("first", 1)
        run_jobs()
        assert row(job).result == [1, 2, 1]
        assert [each.name for each in Checkpoint.objects.order_by("id")] == ["first", "second", "first #2"]

    def test_a_task_may_emit_what_another_waits_for(self) -> None:
        job = step_tasks.waits.enqueue("from a task")
        run(lambda: step("emit", emit_event, "from a task", "hello", atomic=True))
        assert row(job).result == "hello"

    @pytest.mark.parametrize("name", ["", "x" * 246, "a\0b", 7])
    def test_a_name_is_short_printable_text(self, name: Any) -> None:
        with pytest.raises(InvalidArguments, match="the name of an event"):
            emit_event(name)

    def test_a_payload_is_json_of_a_bounded_size(self, settings: Any) -> None:
        settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "MAX_RESULT_BYTES": 100}
        with pytest.raises(InvalidArguments, match=r"payload\['at'\] is a datetime"):
            emit_event("paid", {"at": timezone.now()})
        with pytest.raises(InvalidArguments, match="more than MAX_RESULT_BYTES"):
            emit_event("paid", "x" * 101)
        assert not Event.objects.exists()


class TestTimeout:
    def test_a_wait_that_took_too_long_raises(self) -> None:
        job = step_tasks.waits.enqueue("paid", 60)
        run_jobs()
        assert go_on(job, 50).status == "WAITING"
        assert go_on(job, 61).result == "too late"
        assert not Wait.objects.exists()

    def test_an_event_after_it_changes_nothing(self) -> None:
        def flow() -> Any:
            try:
                wait_for_event("paid", timeout=60)
            except EventTimeout:
                step("told", leaves, "told")
                sleep("nap", 100)
            return [wait_for_event("second")]

        job = run(flow)
        go_on(job, 61)
        emit_event("paid", 1)
        emit_event("second", 2)
        assert go_on(job, 170).result == [2]
        assert Checkpoint.objects.get(name="paid").state == "failed"

    def test_an_event_that_came_in_the_same_moment_wins(self) -> None:
        job = step_tasks.waits.enqueue("paid", 60)
        run_jobs()
        emit_event("paid", 1)
        assert go_on(job, 61).result == 1

    def test_left_alone_it_ends_the_job(self) -> None:
        job = run(lambda: wait_for_event("paid", timeout=60))
        job = go_on(job, 61)
        assert (job.status, job.attempt) == ("DEAD", 1)
        assert job.reason == "the event 'paid' did not come in time"


class TestSuspension:
    def test_a_handler_of_the_task_does_not_swallow_it(self) -> None:
        job = run(lambda: step_tasks.catches_everything("paid"))
        assert job.status == "WAITING"
        assert not Effect.objects.exists()
        emit_event("paid", 5)
        run_jobs()
        assert row(job).result == 5

    def test_one_that_is_swallowed_by_force_suspends_the_job_at_its_end(self) -> None:
        def flow() -> Any:
            try:
                return wait_for_event("paid")
            except BaseException:
                return "swallowed"

        job = run(flow)
        assert job.status == "WAITING"
        emit_event("paid", 5)
        run_jobs()
        assert row(job).result == 5

    def test_an_error_on_the_way_out_of_it_uses_no_attempt(self) -> None:
        def flow() -> Any:
            try:
                return wait_for_event("paid")
            finally:
                if current_job().claims == 1:
                    raise ValueError("cleaning up failed")

        job = run(flow)
        assert (job.status, job.attempt) == ("WAITING", 0)
        assert not Attempt.objects.exists()
        emit_event("paid", 5)
        run_jobs()
        assert row(job).result == 5

    def test_one_that_is_swallowed_by_force_lets_no_further_step_begin(self) -> None:
        def flow() -> Any:
            try:
                wait_for_event("paid")
            except BaseException:
                step("too early", leaves, "too early")

        assert run(flow).status == "WAITING"
        assert not Effect.objects.exists()

    def test_a_waiting_job_is_cancelled_at_once(self) -> None:
        job = step_tasks.waits.enqueue("paid")
        run_jobs()
        assert lifecycle.cancel("default", [job.pk], reason="no more").cancelled == [job.pk]
        emit_event("paid")
        run_jobs()
        assert row(job).status == "CANCELLED"

    def test_a_cancel_that_came_while_it_ran_wins_over_its_wait(self) -> None:
        job = run(
            lambda: [lifecycle.cancel("default", [Job.objects.get().pk], reason="no more"), wait_for_event("paid")]
        )
        assert (job.status, job.reason) == ("CANCELLED", "no more")


class TestUpkeep:
    def test_new_events_are_news_until_somebody_has_looked(self) -> None:
        assert not claim.look("default").has_news
        emit_event("paid")
        assert claim.look("default").has_news
        waits.wake("default")
        assert not claim.look("default").has_news

    def test_a_wait_that_is_over_is_news_until_its_job_goes_on(self) -> None:
        job = step_tasks.waits.enqueue("paid")
        run_jobs()
        Wait.objects.update(is_satisfied=True)
        assert claim.look("default").has_news
        assert waits.wake("default") == 1
        assert row(job).status == "READY"
        assert not claim.look("default").has_news

    def test_a_sleep_of_a_new_run_is_slept_though_the_event_of_the_last_run_came(self) -> None:
        def flow() -> Any:
            sleep("nap", timedelta(hours=1))
            return wait_for_event("came")

        job = go_on(run(flow), 3700)
        lifecycle.cancel("default", [job.pk], reason="")
        emit_event("came", 7)
        run_jobs()
        revival.revive("default", [job.pk], from_start=True)
        run_jobs(max_jobs=5)
        job = row(job)
        assert (job.status, job.reason, Wait.objects.count()) == ("WAITING", "sleeps: nap", 0)
        assert go_on(job, 7400).result == 7

    def test_the_truth_finds_what_was_missed(self) -> None:
        job = step_tasks.waits.enqueue("paid")
        run_jobs()
        emit_event("paid", 3)
        Event.objects.update(is_new=False)
        assert waits.wake("default") == 0
        assert waits.wake_all("default") == 1
        run_jobs()
        assert row(job).result == 3

    def test_the_next_due_moment_is_that_of_a_sleeper_too(self) -> None:
        step_tasks.naps.enqueue(100)
        run_jobs()
        due = claim.look("default").next_due
        assert due is not None
        assert 90 < due < 101

    def test_old_events_go_but_not_what_is_waited_for(self) -> None:
        emit_event("old and forgotten")
        emit_event("old and waited for")
        Event.objects.update(emitted_at=timezone.now() - timedelta(days=31), is_new=False)
        emit_event("new")
        waits.wake("default")
        job = step_tasks.waits.enqueue("old and waited for")
        Wait.objects.create(job=job, event="old and waited for")
        assert events.prune("default") == 1
        assert set(Event.objects.values_list("name", flat=True)) == {"old and waited for", "new"}
        Job.objects.filter(pk=job.pk).update(status="CANCELLED", finished_at=timezone.now())
        assert events.prune("default") == 1

    def test_what_a_job_waited_for_is_pruned_with_it(self) -> None:
        job = step_tasks.waits.enqueue("paid")
        run_jobs()
        lifecycle.cancel("default", [job.pk], reason="")
        Job.objects.update(finished_at=timezone.now() - timedelta(days=8))
        assert maintenance.prune("default") == 1
        assert not Wait.objects.exists()
        assert not Checkpoint.objects.exists()
