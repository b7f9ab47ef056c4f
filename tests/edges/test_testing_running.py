"""`run_jobs()`, `at()` and `inline()` in the tests of a project."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import sync_to_async
from django.dispatch import Signal
from django.test import TestCase
from django.utils import timezone

from django_reliable_jobs import clock, signals
from django_reliable_jobs.exceptions import InvalidArguments, JobFailed, UnknownTask
from django_reliable_jobs.models import Attempt, Job
from django_reliable_jobs.testing import at, inline, run_jobs, tick
from tests import step_tasks, tasks
from tests.factories import ReadyJobFactory
from tests.models import Effect

pytestmark = pytest.mark.django_db
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class TestErrors:
    def test_the_first_one_is_raised_as_it_was_and_says_whose_it_is(self) -> None:
        job, later = tasks.fails.enqueue("it broke"), tasks.effect.enqueue("later")
        with pytest.raises(ValueError, match="it broke") as error:
            run_jobs()
        assert error.traceback[-1].name == "fails", "the traceback leads into the task"
        assert f"raised by job {job.pk} (tests.tasks.fails), attempt 1 of 3" in error.value.__notes__[0]
        job.refresh_from_db()
        later.refresh_from_db()
        assert (job.status, later.status) == ("SCHEDULED", "READY")
        assert Attempt.objects.get().error_message == "it broke"
        run_jobs()
        assert Effect.objects.get().name == "later"

    def test_asked_otherwise_they_are_in_the_rows_and_the_others_run(self) -> None:
        dead, job = tasks.retries_only_lost_connections.enqueue(), tasks.effect.enqueue("a")
        assert run_jobs(raise_errors=False) == [dead, job]
        assert dict(Job.objects.values_list("pk", "status")) == {dead.pk: "DEAD", job.pk: "SUCCEEDED"}

    @pytest.mark.parametrize(
        ("ending", "status"),
        [("retry", "READY"), ("snooze", "SCHEDULED"), ("cancel", "CANCELLED"), ("fail", "DEAD")],
    )
    def test_an_ending_that_the_task_chose_is_none(self, ending: str, status: str) -> None:
        job = tasks.ends_by.enqueue(ending, after=30)
        run_jobs()
        job.refresh_from_db()
        assert job.status == status.replace("READY", "SCHEDULED")

    def test_a_result_that_is_no_json_is_one(self) -> None:
        tasks.returns_an_object.enqueue()
        with pytest.raises(JobFailed, match="can't be stored"):
            run_jobs()

    def test_a_task_that_is_not_declared_is_one(self) -> None:
        ReadyJobFactory(task="nobody.knows.it")
        with pytest.raises(UnknownTask, match=r"nobody\.knows\.it"):
            run_jobs()

    def test_even_an_exit_is_one(self) -> None:
        tasks.leaves.enqueue()
        with pytest.raises(SystemExit):
            run_jobs()


class TestUntil:
    def test_retries_run_at_their_time(self) -> None:
        with at(NOON):
            job = tasks.fails.enqueue()
            run_jobs(until=timedelta(seconds=9), raise_errors=False)
            assert Attempt.objects.count() == 1
            run_jobs(until=timedelta(minutes=5), raise_errors=False)
        starts = [attempt.started_at.replace(microsecond=0) for attempt in Attempt.objects.all()]
        assert starts == [NOON, NOON + timedelta(seconds=10), NOON + timedelta(seconds=30)]
        job.refresh_from_db()
        assert (job.status, job.attempt) == ("DEAD", 3)

    def test_it_stops_at_the_moment_and_the_clock_goes_back(self) -> None:
        first, second = (tasks.nothing.using(run_after=timedelta(hours=hours)).enqueue() for hours in (1, 3))
        assert run_jobs(until=timezone.now() + timedelta(hours=2)) == [first]
        assert clock.moment() is None
        second.refresh_from_db()
        assert second.status == "SCHEDULED"

    @pytest.mark.parametrize(
        "until", ["2030-01-02 13:00", datetime(2030, 1, 2, 13), datetime(2030, 1, 2, 13, tzinfo=UTC)]
    )
    def test_a_moment_may_be_naive_or_text_as_for_the_clock(self, until: Any) -> None:
        with at(NOON):
            first, _ = (tasks.nothing.using(run_after=timedelta(days=days)).enqueue() for days in (1, 2))
            assert run_jobs(until=until) == [first]

    @pytest.mark.parametrize("until", [3600, object()])
    def test_what_is_no_moment_is_refused_though_no_job_waits(self, until: Any) -> None:
        with pytest.raises(TypeError, match="a moment is a datetime, or text such as"):
            run_jobs(until=until)

    def test_jobs_that_put_each_other_off_for_ever_are_counted(self) -> None:
        tasks.snoozes_a_minute.enqueue()
        with pytest.raises(RuntimeError, match=r"20 jobs have run .*: job \d+ alone ran 20 times"):
            run_jobs(until=timedelta(days=9), max_jobs=20)
        assert not Job.objects.filter(status="RUNNING").exists()


class TestAt:
    @pytest.mark.parametrize(
        ("moment", "tz", "expected"),
        [
            ("2026-03-29 01:59", "Europe/Berlin", datetime(2026, 3, 29, 0, 59, tzinfo=UTC)),
            ("2026-03-29 02:30", "Europe/Berlin", datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
            ("2026-10-25 02:30", "Europe/Berlin", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
            (datetime(2026, 10, 25, 2, 30, fold=1), "Europe/Berlin", datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
            ("2026-03-29 02:30", ZoneInfo("Asia/Kolkata"), datetime(2026, 3, 28, 21, tzinfo=UTC)),
            ("2026-03-29", None, datetime(2026, 3, 29, tzinfo=UTC)),
            ("2026-03-29T02:30+02:00", None, datetime(2026, 3, 29, 0, 30, tzinfo=UTC)),
            (NOON, None, NOON),
        ],
    )
    def test_a_moment_may_be_text_in_a_zone(self, moment: Any, tz: Any, expected: datetime) -> None:
        with at(moment, tz):
            assert tasks.nothing.enqueue().created_at == expected

    def test_two_zones_are_refused(self) -> None:
        with pytest.raises(ValueError, match="has a time zone already"), at(NOON, "UTC"):
            pass

    def test_schedules_see_it(self) -> None:
        assert tick(at="2000-01-01 12:00") == []


class TestInline:
    def test_the_job_that_comes_back_has_ended(self) -> None:
        with inline():
            job = tasks.effect.enqueue("a")
            many = tasks.effect.enqueue_many([{"name": "b"}, {"name": "c"}])
        assert (job.status, job.result) == ("SUCCEEDED", "a")
        assert [each.result for each in many] == ["b", "c"]
        assert tasks.effect.enqueue("d").status == "READY"

    def test_signals_come_in_their_order(self) -> None:
        told: list[str] = []
        receivers: dict[Signal, Any] = {
            signals.enqueued: lambda **_: told.append("enqueued"),
            signals.succeeded: lambda **_: told.append("succeeded"),
        }
        for signal, receiver in receivers.items():
            signal.connect(receiver)
        try:
            with inline():
                tasks.effect.enqueue("a")
                tasks.effect.enqueue_many([{"name": "b"}])
        finally:
            for signal, receiver in receivers.items():
                signal.disconnect(receiver)
        assert told == ["enqueued", "succeeded"] * 2

    def test_arguments_become_json_and_come_back(self) -> None:
        with inline():
            job = tasks.echo.enqueue([1], {"a": None})
            assert job.result == [[1], {"a": None}]
            with pytest.raises(InvalidArguments, match="a datetime"):
                tasks.echo.enqueue(NOON)

    def test_an_error_reaches_the_caller_unless_asked_otherwise(self) -> None:
        with inline(), pytest.raises(ValueError, match="it broke"):
            tasks.fails.enqueue()
        with inline(raise_errors=False):
            assert tasks.retries_only_lost_connections.enqueue().status == "DEAD"

    def test_what_is_due_later_waits(self) -> None:
        with inline():
            assert tasks.effect.using(run_after=timedelta(seconds=60)).enqueue("a").status == "SCHEDULED"

    def test_an_error_of_a_job_that_a_job_enqueues_ends_both(self) -> None:
        step_tasks.flow = tasks.fails.enqueue
        with inline(), pytest.raises(ValueError, match="it broke"):
            step_tasks.follows.enqueue()
        assert set(Attempt.objects.values_list("job__task", "error_message")) == {
            ("tests.step_tasks.follows", "it broke"),
            ("tests.tasks.fails", "it broke"),
        }

    def test_jobs_enqueued_by_jobs_run_too_and_one_that_enqueues_itself_is_stopped(self) -> None:
        with inline():
            tasks.enqueues_effect.enqueue("a")
            assert Effect.objects.get().name == "a"
            with pytest.raises(RuntimeError, match="30 jobs in each other"):
                tasks.enqueues_itself.enqueue()


class InATestCase(TestCase):
    """As a project writes it without pytest."""

    async def test_a_coroutine_runs_jobs_in_a_thread_and_is_told_so(self) -> None:
        with pytest.raises(Exception, match=r"await sync_to_async\(run_jobs\)\(\)"):
            run_jobs()
        job = await tasks.effect.aenqueue("a")
        assert await sync_to_async(run_jobs)() == [job]
        with inline():
            job = await tasks.effect.aenqueue("b")
        assert (job.status, job.result) == ("SUCCEEDED", "b")

    def test_a_failed_statement_leaves_the_tests_transaction_usable(self) -> None:
        tasks.breaks_its_transaction.enqueue()
        with pytest.raises(Exception, match="division by zero"):
            run_jobs()
        assert Job.objects.count() == 1
