"""What is undone is undone once, whatever comes after it; what can't be undone is counted, told, and stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_reliable_jobs import Fail, Retry, Snooze, current_job, sleep, step
from django_reliable_jobs.engine import lifecycle, maintenance, revival
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.models import Alert, Checkpoint, Job
from django_reliable_jobs.processes.judging import unrecordable
from tests import step_tasks, tasks
from tests.actors import on_stage
from tests.claims import claim_one_as, end, row
from tests.concurrency.test_step_races import run as run_claimed
from tests.concurrency.test_step_races import terminate
from tests.engine.test_undo import breaks, effects, go_on, leaves_by_hand, run
from tests.lost_answers import lose_the_answer_to_the_next_commit
from tests.recorded import run_jobs
from tests.step_tasks import make, unmake

pytestmark = pytest.mark.django_db(transaction=True)


def about_to_undo(flow: Callable[[], Any]) -> ClaimedJob:
    """A job that has run into its end, and was claimed to undo."""
    step_tasks.flow = flow
    step_tasks.follows.enqueue()
    run_claimed(claim_one_as(1))
    job = claim_one_as(2)
    assert job.is_undoing
    return job


def makes_one_atomically() -> None:
    step("make a", make, "a", undo=unmake, atomic=True)
    raise Fail("the end")


def makes_one() -> None:
    step("make a", make, "a", undo=unmake)
    raise Fail("the end")


def instead(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., Any]) -> None:
    """Deploy another function of that name."""
    function.__module__, function.__qualname__ = step_tasks.__name__, name
    monkeypatch.setattr(step_tasks, name, function)


def fail() -> None:
    raise ValueError("the hook failed")


class TestCommitted:
    def test_an_undo_whose_commit_was_not_answered_is_not_done_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job = about_to_undo(makes_one_atomically)
        lost = lose_the_answer_to_the_next_commit(monkeypatch)
        run_claimed(job)
        assert lost
        assert effects() == ["make a", "unmake a"]
        assert (row(job).status, row(job).compensation) == ("DEAD", "done")

    def test_a_hook_that_fails_after_its_commit_changes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unmake_with_a_hook(made: str, name: str) -> None:
            unmake(made, name)
            transaction.on_commit(fail)

        job = about_to_undo(makes_one_atomically)
        instead(monkeypatch, "unmake", unmake_with_a_hook)
        run_claimed(job)
        assert effects() == ["make a", "unmake a"]
        undone = Checkpoint.objects.get(name="make a")
        assert (undone.undo_state, undone.undo_tries, undone.undo_error) == ("done", 1, None)
        assert row(job).compensation == "done"

    def test_a_connection_that_was_lost_during_an_undo_costs_no_second_call(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unmake_and_lose_the_connection(made: str, name: str) -> None:
            unmake(made, name)
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                pid = cursor.fetchone()[0]
            with on_stage("administrator") as [administrator]:
                administrator.does(terminate, pid)

        job = about_to_undo(makes_one)
        instead(monkeypatch, "unmake", unmake_and_lose_the_connection)
        run_claimed(job)
        assert effects() == ["make a", "unmake a"]
        assert row(job).compensation == "done"


class TestTimeout:
    def test_an_undo_that_runs_longer_than_the_timeout_of_its_task_has_failed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unmake_for_too_long(made: str, name: str) -> None:
            tasks.leave_effect("tried")
            current_job()._stop.reason = "timeout"  # as the worker's deadlines do
            current_job().raise_if_stopping()

        job = run(lambda: [step("make a", make, "a", undo=unmake), sleep("nap", 1000)])
        instead(monkeypatch, "unmake", unmake_for_too_long)
        lifecycle.cancel("default", [job.pk], reason="no more")
        run_jobs()
        assert (row(job).status, row(job).compensation) == ("CANCELLED", "failed")
        assert effects() == ["make a", *["tried"] * 5]
        failed = Checkpoint.objects.get(name="make a")
        assert failed.undo_error == "TimeoutError: the undo ran longer than the timeout of its task"
        assert list(Alert.objects.values_list("kind", flat=True)) == ["undo_failed"]


class TestChosen:
    """An undo knows best when it is to be tried again."""

    @pytest.mark.parametrize(("ending", "tries"), [(Retry(3600), 2), (Snooze(timedelta(hours=1)), 1)])
    def test_it_says_when(self, monkeypatch: pytest.MonkeyPatch, ending: Exception, tries: int) -> None:
        def unmake_in_an_hour(made: str, name: str) -> None:
            tasks.leave_effect("tried")
            if effects().count("tried") == 1:
                raise ending

        job = run(lambda: [step("make a", make, "a", undo=unmake), sleep("nap", 1000)])
        instead(monkeypatch, "unmake", unmake_in_an_hour)
        lifecycle.cancel("default", [job.pk], reason="no more")
        run_jobs()
        assert row(job).status == "SCHEDULED"
        assert go_on(job, 3500).status == "SCHEDULED"
        assert (go_on(job, 3700).compensation, effects()) == ("done", ["make a", "tried", "tried"])
        assert Checkpoint.objects.get(name="make a").undo_tries == tries

    def test_it_gives_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def can_not_unmake(made: str, name: str) -> None:
            tasks.leave_effect("tried")
            raise Fail("it was sold")

        job = run(lambda: [step("make a", make, "a", undo=unmake), sleep("nap", 1000)])
        instead(monkeypatch, "unmake", can_not_unmake)
        lifecycle.cancel("default", [job.pk], reason="no more")
        run_jobs()
        assert (row(job).status, row(job).compensation, effects()) == ("CANCELLED", "failed", ["make a", "tried"])


class TestUnkeepableResult:
    """A step had its effect, and returned what is no JSON: it failed, and yet there is something to undo."""

    def test_it_is_not_written_off(self) -> None:
        job = run(lambda: step("charge", step_tasks.makes_what_is_no_json, "a", undo=unmake))
        assert (job.status, job.compensation) == ("DEAD", "failed")
        assert "object" in job.reason
        assert list(Alert.objects.values_list("kind", flat=True)) == ["undo_failed"]

    def test_when_its_code_is_mended_it_is_undone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job = run(lambda: step("charge", step_tasks.makes_what_is_no_json, "a", undo=unmake))
        instead(monkeypatch, "makes_what_is_no_json", lambda name: make(name))
        assert revival.retry_undo("default", [job.pk]) == [job.pk]
        run_jobs()
        assert (row(job).status, row(job).compensation) == ("DEAD", "done")
        assert effects()[-2:] == ["make a", "unmake a"]

    def test_an_atomic_one_has_left_nothing(self) -> None:
        job = run(lambda: step("charge", step_tasks.makes_what_is_no_json, "a", undo=unmake, atomic=True))
        assert (job.status, job.compensation, effects()) == ("DEAD", "none", [])


class TestFailedUndo:
    def test_on_dead_follows_once_though_the_undo_is_retried(self) -> None:
        job = step_tasks.breaks_and_is_buried.enqueue()
        run_jobs()
        assert row(job).compensation == "failed"
        leaves_by_hand("mended")
        revival.retry_undo("default", [job.pk])
        run_jobs()
        assert row(job).compensation == "done"
        assert effects().count(f"buried {job.pk}") == 1
        revival.revive("default", [job.pk])
        run_jobs()
        assert effects().count(f"buried {job.pk}") == 2, "a new run may die anew"

    def test_a_newer_job_with_its_unique_key_does_not_hold_up_its_undo(self) -> None:
        step_tasks.flow = breaks
        job = step_tasks.follows.using(unique_key="order-7").enqueue()
        run_jobs()
        newer = step_tasks.follows.using(unique_key="order-7", run_after=timedelta(days=1)).enqueue()
        assert newer.created
        leaves_by_hand("mended")
        assert revival.retry_undo("default", [job.pk]) == [job.pk]
        run_jobs()
        assert row(job).compensation == "done"
        assert row(newer).unique_hash is not None

    def test_its_key_stays_if_nobody_else_has_it(self) -> None:
        step_tasks.flow = breaks
        job = step_tasks.follows.using(unique_key="order-7").enqueue()
        run_jobs()
        revival.retry_undo("default", [job.pk])
        assert not step_tasks.follows.using(unique_key="order-7").enqueue().created

    def test_an_undo_whose_end_cannot_be_recorded_is_told_too(self) -> None:
        job = about_to_undo(makes_one)
        assert end(job, unrecordable(ValueError("no such text")))
        assert (row(job).status, row(job).compensation) == ("DEAD", "failed")
        assert list(Alert.objects.values_list("kind", flat=True)) == ["undo_failed"]

    def test_a_cancelled_job_that_could_not_undo_stays_until_a_person_acts(self) -> None:
        job = run(breaks)
        Job.objects.filter(pk=job.pk).update(status="CANCELLED", finished_at=timezone.now() - timedelta(days=400))
        assert maintenance.prune("default") == 0
        leaves_by_hand("mended")
        revival.retry_undo("default", [job.pk])
        run_jobs()
        Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timedelta(days=400))
        assert maintenance.prune("default") == 1

    def test_a_retry_of_an_undo_that_waits_for_its_next_try_forgets_nothing(self) -> None:
        def flow() -> None:
            step("make a", make, "a", undo=step_tasks.unmake_while_it_is_broken)
            step("fail", step_tasks.fails, "fail", max_attempts=1)

        job = run(flow, step_tasks.gives_up)
        assert (job.status, job.compensation) == ("SCHEDULED", "running")
        assert revival.revive("default", [job.pk]).revived == [job.pk]
        assert row(job).reason == job.reason
        assert list(Checkpoint.objects.order_by("id").values_list("name", flat=True)) == ["make a", "fail"]
