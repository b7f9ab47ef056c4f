"""What a job undoes before it ends as DEAD or CANCELLED."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_reliable_jobs import Cancel, Fail, current_job, step
from django_reliable_jobs.engine import claim, lifecycle, maintenance, revival
from django_reliable_jobs.models import Alert, CancelRequest, Checkpoint, Job
from django_reliable_jobs.testing import at
from tests import step_tasks
from tests.claims import claim_one_as, let_lease_run_out
from tests.models import Effect
from tests.recorded import run_jobs
from tests.step_tasks import make, makes_three, unmake

pytestmark = pytest.mark.django_db


def row(job: Job) -> Any:
    return Job.objects.get(pk=job.pk)


def run(flow: Callable[[], Any], task: Any = step_tasks.follows) -> Any:
    step_tasks.flow = flow
    job = task.enqueue()
    run_jobs()
    return row(job)


def go_on(job: Job, seconds: float) -> Any:
    with at(timezone.now() + timedelta(seconds=seconds)):
        run_jobs()
    return row(job)


def effects() -> list[str]:
    return list(Effect.objects.order_by("pk").values_list("name", flat=True))


MADE = ["make a", "make b", "make c"]
UNMADE = ["unmake c", "unmake b", "unmake a"]


class TestDeath:
    def test_a_job_that_dies_undoes_its_steps_newest_first(self) -> None:
        job = makes_three.enqueue()
        run_jobs()
        job = row(job)
        assert effects() == [*MADE, *UNMADE]
        assert (job.status, job.compensation, job.attempt) == ("DEAD", "done", 2)
        assert job.reason == "ValueError: the end"
        assert job.finished_at is not None
        assert job.ends_as is None

    def test_a_job_that_succeeds_undoes_nothing(self) -> None:
        job = makes_three.enqueue("succeeds")
        run_jobs()
        assert (row(job).status, row(job).compensation) == ("SUCCEEDED", "none")
        assert effects() == MADE

    def test_an_attempt_that_is_followed_by_another_undoes_nothing(self) -> None:
        def flow() -> str:
            step("make a", make, "a", undo=unmake)
            if current_job().attempt == 1:
                raise ValueError("once")
            return "made"

        assert run(flow).status == "SUCCEEDED"
        assert effects() == ["make a"]

    def test_while_it_undoes_it_has_not_ended(self) -> None:
        makes_three.enqueue()
        job = claim_one_as(1)
        for name in ("a", "b", "c"):
            make_by_hand(job, name)
        die(job)
        assert (row_of(job).status, row_of(job).compensation, row_of(job).ends_as) == ("READY", "running", "DEAD")
        assert row_of(job).finished_at is None
        assert claim.look("default").heads

    def test_a_step_that_failed_is_not_undone_and_those_before_it_are(self) -> None:
        def flow() -> None:
            step("make a", make, "a", undo=unmake)
            step("fail", step_tasks.fails, "fail", undo=unmake, max_attempts=1)

        job = run(flow)
        assert (job.status, job.compensation) == ("DEAD", "done")
        assert effects() == ["make a", "fail", "unmake a"]

    def test_a_step_that_succeeded_after_a_failed_one_is_undone_too(self) -> None:
        def flow() -> None:
            try:
                step("fail", step_tasks.fails, "fail", max_attempts=1)
            except Exception:
                step("make b", make, "b", undo=unmake)
            raise Fail("after all")

        assert run(flow).compensation == "done"
        assert effects() == ["fail", "make b", "unmake b"]

    def test_on_dead_follows_when_all_is_undone(self) -> None:
        job = step_tasks.makes_one_and_is_buried.enqueue()
        run_jobs()
        assert row(job).status == "DEAD"
        assert effects() == ["make a", "unmake a", f"buried {job.pk}"]

    def test_a_job_that_may_start_once_undoes_as_well(self) -> None:
        def flow() -> None:
            step("make a", make, "a", undo=unmake)
            raise ValueError("the end")

        job = run(flow, step_tasks.follows_once)
        assert (job.status, job.compensation, job.attempt) == ("DEAD", "done", 1)
        assert effects() == ["make a", "unmake a"]


class TestCancel:
    @pytest.mark.parametrize("ending", ["waits", "sleeps"])
    def test_a_waiting_job_undoes_before_it_is_cancelled(self, ending: str) -> None:
        job = makes_three.enqueue(ending)
        run_jobs()
        assert row(job).status == "WAITING"
        assert lifecycle.cancel("default", [job.pk], reason="no more").asked == [job.pk]
        assert (row(job).status, row(job).compensation) == ("READY", "running")
        run_jobs()
        assert (row(job).status, row(job).compensation, row(job).reason) == ("CANCELLED", "done", "no more")
        assert effects() == [*MADE, *UNMADE]

    def test_a_second_cancel_while_it_undoes_changes_nothing(self) -> None:
        job = makes_three.enqueue("waits")
        run_jobs()
        lifecycle.cancel("default", [job.pk], reason="no more")
        again = lifecycle.cancel("default", [job.pk], reason="really")
        assert (again.cancelled, again.asked) == ([], [])
        assert not CancelRequest.objects.exists()
        run_jobs()
        assert row(job).reason == "no more"
        assert effects() == [*MADE, *UNMADE]

    def test_a_task_that_cancels_itself_undoes(self) -> None:
        def flow() -> None:
            step("make a", make, "a", undo=unmake)
            raise Cancel("changed my mind")

        job = run(flow)
        assert (job.status, job.compensation, job.reason) == ("CANCELLED", "done", "changed my mind")
        assert effects() == ["make a", "unmake a"]

    def test_a_request_that_came_while_it_ran_is_answered_by_undoing(self) -> None:
        def flow() -> None:
            step("make a", make, "a", undo=unmake)
            lifecycle.cancel("default", [current_job().id], reason="no more")
            raise ValueError("the end")

        job = run(flow)
        assert (job.status, job.compensation, job.reason) == ("CANCELLED", "done", "no more")
        assert effects() == ["make a", "unmake a"]

    def test_a_request_is_honoured_at_rest_by_undoing(self) -> None:
        job = makes_three.enqueue("sleeps")
        run_jobs()
        CancelRequest.objects.create(job=job, reason="left over")
        assert maintenance.honour_cancel_requests("default").requests == 1
        assert not CancelRequest.objects.exists()
        run_jobs()
        assert (row(job).status, row(job).compensation, row(job).reason) == ("CANCELLED", "done", "left over")

    def test_a_job_with_nothing_to_undo_is_cancelled_at_once(self) -> None:
        job = run(lambda: [step("make a", make, "a"), step_tasks.wait_for_event("never")])
        assert lifecycle.cancel("default", [job.pk], reason="").cancelled == [job.pk]
        assert row(job).compensation == "none"


class TestFailingUndo:
    def test_it_has_its_own_tries(self) -> None:
        def flow() -> None:
            step("make a", make, "a", undo=unmake)
            step("make b", make, "b", undo=step_tasks.unmake_in_the_third_try)
            raise Fail("the end")

        job = run(flow)
        assert (job.status, job.compensation, job.attempt) == ("DEAD", "done", 1)
        assert effects() == ["make a", "make b", *["try to unmake b"] * 3, "unmake a"]
        assert Checkpoint.objects.get(name="make b").undo_tries == 3

    def test_one_that_fails_for_good_is_visible_and_stops_there(self) -> None:
        job = run(breaks)
        assert (job.status, job.compensation) == ("DEAD", "failed")
        assert effects() == ["make a", "make b", *["unmake b, broken"] * 5]
        broken = Checkpoint.objects.get(name="make b")
        assert (broken.undo_state, broken.undo_tries, broken.undo_error) == (
            "failed",
            5,
            "ValueError: b can't be unmade",
        )
        assert Checkpoint.objects.get(name="make a").undo_state is None

    def test_a_person_retries_it_from_where_it_stopped(self) -> None:
        job = run(breaks)
        leaves_by_hand("mended")
        assert revival.retry_undo("default", [job.pk]) == [job.pk]
        run_jobs()
        assert (row(job).status, row(job).compensation) == ("DEAD", "done")
        assert effects()[-2:] == ["unmake b, broken", "unmake a"]
        assert effects().count("make b") == 1
        assert revival.retry_undo("default", [job.pk]) == []

    def test_a_retry_of_the_job_begins_a_new_run(self) -> None:
        keys = []

        def flow() -> None:
            keys.append(current_job().idempotency_key("charge"))
            step("make a", make, "a", undo=unmake)
            raise Fail("the end")

        job = run(flow)
        assert revival.revive("default", [job.pk]).revived == [job.pk]
        run_jobs()
        assert (row(job).run, row(job).compensation) == (2, "done")
        assert effects() == ["make a", "unmake a"] * 2
        assert len(set(keys)) == 2

    def test_no_step_begins_inside_an_undo(self) -> None:
        def flow() -> None:
            step("make a", make, "a", undo=step_tasks.asks_for_a_step)
            raise Fail("the end")

        job = run(flow)
        assert job.compensation == "failed"
        assert "stands inside another step" in Checkpoint.objects.get(name="make a").undo_error
        assert effects() == ["make a"]

    def test_a_function_that_is_gone_fails_and_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job = makes_three.enqueue("waits")
        run_jobs()
        monkeypatch.delattr(step_tasks, "unmake")
        lifecycle.cancel("default", [job.pk], reason="")
        for minutes in range(1, 20):
            go_on(job, 60.0 * minutes)
        assert row(job).compensation == "failed"
        assert "tests.step_tasks:unmake is not in the module" in Checkpoint.objects.get(name="make c").undo_error


class TestCutOff:
    """A step that began, and whose end nobody knows, is called again, so that what it did can be undone."""

    def test_it_is_called_again_and_then_undone(self) -> None:
        makes_three.enqueue()
        job = claim_one_as(1)
        begin_by_hand(job, "a")
        die(job)
        run_jobs()
        assert effects() == ["make a", "unmake a"]
        assert row_of(job).compensation == "done"

    def test_one_that_fails_whenever_it_is_called_stays_in_doubt_and_is_not_written_off(self) -> None:
        def flow() -> None:
            step("fail", step_tasks.fails, "fail", undo=unmake, backoff=step_tasks.IN_A_MINUTE)

        job = run(flow)
        assert job.status == "SCHEDULED"
        lifecycle.cancel("default", [job.pk], reason="")
        for minutes in range(1, 10):
            go_on(job, 60.0 * minutes)
        assert (row(job).status, row(job).compensation) == ("CANCELLED", "failed")
        assert Checkpoint.objects.get(name="fail").state == "trying"
        assert Alert.objects.get().kind == "undo_failed"

    def test_the_begin_of_a_step_with_undo_is_written_before_it_is_called(self) -> None:
        seen = []

        def flow() -> None:
            step("make a", step_tasks.makes_and_looks, "a", undo=unmake)

        step_tasks.look = lambda: seen.append(Checkpoint.objects.values_list("name", "state", "tries").get())
        run(flow)
        assert seen == [("make a", "trying", 0)]


class TestLosses:
    def test_a_worker_lost_while_undoing_gives_the_job_back(self) -> None:
        job = undoing_job()
        let_lease_run_out(job)
        assert maintenance.rescue("default") == 1
        assert (row_of(job).status, row_of(job).compensation) == ("READY", "running")
        run_jobs()
        assert (row_of(job).status, row_of(job).compensation) == ("DEAD", "done")
        assert effects() == ["unmake a"]

    def test_a_job_that_may_start_once_goes_on_undoing(self) -> None:
        job = undoing_job(max_attempts=1)
        let_lease_run_out(job)
        maintenance.rescue("default")
        assert row_of(job).status == "READY"

    def test_an_undo_that_kills_its_workers_is_given_up(self, settings: Any) -> None:
        settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "MAX_LOSSES": 1}
        job = undoing_job()
        let_lease_run_out(job)
        maintenance.rescue("default")
        assert (row_of(job).status, row_of(job).compensation) == ("DEAD", "failed")


def breaks() -> None:
    step("make a", make, "a", undo=unmake)
    step("make b", make, "b", undo=step_tasks.unmake_while_it_is_broken)
    raise Fail("the end")


def row_of(job: Any) -> Any:
    return Job.objects.get(pk=job.id)


def make_by_hand(job: Any, name: str, **changes: Any) -> None:
    """Keep a step as an attempt would."""
    given = {"state": "done", "value": f"<{name}>", "tries": 1, **changes}
    Checkpoint.objects.create(
        job_id=job.id,
        run=job.run,
        name=f"make {name}",
        kind="step",
        function="tests.step_tasks:make",
        undo="tests.step_tasks:unmake",
        args=[name],
        token=job.token,
        saved_at=timezone.now(),
        **given,
    )


def begin_by_hand(job: Any, name: str) -> None:
    make_by_hand(job, name, state="trying", value="", tries=0)


def die(job: Any) -> None:
    outcome = lifecycle.Outcome(status="DEAD", attempt="failed", reason="it broke")
    assert lifecycle.end("default", [lifecycle.Ending(job.id, job.token, outcome)], worker="host:1") == {job.id}


def undoing_job(**changes: Any) -> Any:
    """A job in the hands of a worker that undoes what it did."""
    makes_three.enqueue()
    first = claim_one_as(1)
    make_by_hand(first, "a")
    die(first)
    Job.objects.filter(pk=first.id).update(**{"max_attempts": 5, **changes})
    second = claim_one_as(2)
    assert second.is_undoing
    return second


def leaves_by_hand(name: str) -> None:
    Effect.objects.create(name=name)
