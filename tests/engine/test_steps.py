"""What a step does, keeps and raises, in jobs that run in the test's own thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from django_reliable_jobs import current_job, exponential, sleep, step, wait_for_event
from django_reliable_jobs.exceptions import InvalidStep, StepFailed
from django_reliable_jobs.models import Attempt, Checkpoint, Job
from django_reliable_jobs.testing import at
from tests import step_tasks, tasks
from tests.models import Effect
from tests.recorded import run_jobs
from tests.step_tasks import IN_A_MINUTE, fails, fails_until, leaves, raises_ending

pytestmark = pytest.mark.django_db


def run(flow: Callable[[], Any], task: Any = step_tasks.follows) -> Any:
    """Enqueue a job whose code is `flow`, run what is ready, and return its row."""
    step_tasks.flow = flow
    job = task.enqueue()
    run_jobs()
    return Job.objects.get(pk=job.pk)


def go_on(job: Job, seconds: float) -> Any:
    """Run what is due so many seconds from now; return the job's row."""
    with at(timezone.now() + timedelta(seconds=seconds)):
        run_jobs()
    return Job.objects.get(pk=job.pk)


def done() -> dict[str, int]:
    return dict(Counter(Effect.objects.values_list("name", flat=True)))


def steps_of(job: Job) -> list[tuple[str, str, int | None]]:
    return list(Checkpoint.objects.filter(job=job).order_by("id").values_list("name", "state", "tries"))


class TestReplay:
    def test_a_step_runs_once_and_returns_the_same_in_every_attempt(self) -> None:
        def flow() -> Any:
            first = step("first", leaves, "first", {"id": 7})
            if current_job().attempt == 1:
                raise ValueError("once")
            return [first, step("second", leaves, "second", 2)]

        job = run(flow)
        assert (job.status, job.result, job.attempt) == ("SUCCEEDED", [{"id": 7}, 2], 2)
        assert done() == {"first": 1, "second": 1}

    def test_a_name_in_a_loop_is_numbered(self) -> None:
        def flow() -> Any:
            sent = [step("send", leaves, f"send {number}", number) for number in range(3)]
            if current_job().attempt == 1:
                raise ValueError("once")
            return sent

        job = run(flow)
        assert job.result == [0, 1, 2]
        assert done() == {"send 0": 1, "send 1": 1, "send 2": 1}
        assert [name for name, _, _ in steps_of(job)] == ["send", "send #2", "send #3"]

    def test_the_same_name_for_another_function_is_refused(self) -> None:
        def flow() -> None:
            step("send", leaves, "one")
            step("send", fails, "two")

        job = run(flow)
        assert job.status == "DEAD"
        assert "was used for tests.step_tasks:leaves before" in job.reason
        assert done() == {"one": 1}

    def test_a_checkpoint_may_have_the_name_of_a_step(self) -> None:
        def flow() -> Any:
            current_job().save_checkpoint("charge", "mine")
            result = step("charge", leaves, "charge", "kept")
            current_job().save_checkpoint("charge", "mine too")
            if current_job().attempt == 1:
                raise ValueError("once")
            return [result, current_job().load_checkpoint("charge")]

        assert run(flow).result == ["kept", "mine too"]

    def test_what_a_step_returns_the_first_time_is_what_a_replay_returns(self) -> None:
        class Text(str):
            pass

        def flow() -> str:
            return type(step("text", lambda: Text("x"))).__name__

        assert run(flow).result == "str"

    def test_another_run_of_the_job_does_its_steps_again(self) -> None:
        job = run(lambda: step("first", leaves, "first"))
        Job.objects.filter(pk=job.pk).update(status="READY", finished_at=None, run=2)
        run_jobs()
        assert done() == {"first": 2}

    def test_a_renamed_step_puts_the_job_back_until_code_that_fits_is_deployed(self, caplog: Any) -> None:
        def old() -> Any:
            charged = step("charge", leaves, "charge", 7)
            sleep("pause", 10)
            return charged

        job = run(old)
        step_tasks.flow = lambda: step("charge_card", leaves, "charge_card")
        job = go_on(job, 11)
        assert (job.status, job.attempt) == ("SCHEDULED", 0)
        assert (
            "the step 'charge' is number 1 of its history, and the code asks for the step 'charge_card'" in job.reason
        )
        assert "Living with code changes" in job.reason
        assert "charge_card" in caplog.text
        assert done() == {"charge": 1}
        step_tasks.flow = old
        job = go_on(job, 120)
        assert (job.status, job.result) == ("SUCCEEDED", 7)
        assert done() == {"charge": 1}

    def test_a_handler_of_the_task_does_not_swallow_a_mismatch(self) -> None:
        def old() -> None:
            step("charge", leaves, "charge")
            sleep("pause", 10)

        def renamed() -> None:
            try:
                step("charge_card", leaves, "charge_card")
            except Exception:
                leaves("swallowed")

        job = run(old)
        step_tasks.flow = renamed
        assert go_on(job, 11).status == "SCHEDULED"
        assert done() == {"charge": 1}

    def test_removed_last_steps_are_told_in_the_log(self, caplog: Any) -> None:
        def old() -> None:
            step("charge", leaves, "charge")
            step("mail", leaves, "mail")
            sleep("pause", 10)

        job = run(old)
        step_tasks.flow = lambda: step("charge", leaves, "charge")
        assert go_on(job, 11).status == "SUCCEEDED"
        assert "without asking for steps of its history: 'mail', 'pause'" in caplog.text


class TestFailures:
    def test_a_failed_try_uses_no_attempt_and_runs_no_earlier_step_again(self) -> None:
        def flow() -> Any:
            step("first", leaves, "first")
            return step("flaky", fails_until, "flaky", 3, backoff=IN_A_MINUTE)

        job = run(flow)
        assert (job.status, job.attempt) == ("SCHEDULED", 0)
        assert "the step 'flaky' failed, try 1 of 3: ConnectionError: flaky is not ready" in job.reason
        go_on(job, 30)
        assert done() == {"first": 1, "flaky": 1}
        go_on(job, 61)
        job = go_on(job, 122)
        assert (job.status, job.result, job.attempt) == ("SUCCEEDED", "flaky", 1)
        assert done() == {"first": 1, "flaky": 3}
        assert steps_of(job) == [("first", "done", 1), ("flaky", "done", 3)]
        assert not Attempt.objects.exists()

    def test_without_a_pause_it_is_tried_again_at_once(self) -> None:
        job = run(lambda: step("flaky", fails_until, "flaky", 3))
        assert (job.status, job.claims) == ("SUCCEEDED", 1)

    def test_the_pause_is_that_of_the_task_unless_the_step_has_its_own(self) -> None:
        assert run(lambda: step("flaky", fails_until, "flaky", 9)).status == "DEAD"
        job = run(lambda: step("slow", fails_until, "slow", 9, backoff=IN_A_MINUTE))
        assert job.status == "SCHEDULED"

    def test_the_last_failure_ends_the_job_without_further_attempts(self) -> None:
        job = run(lambda: step("charge", fails, "charge", "card refused"))
        assert (job.status, job.attempt) == ("DEAD", 1)
        assert job.reason == "the step 'charge' failed after 3 tries: ValueError: card refused"
        assert done() == {"charge": 3}
        attempt = Attempt.objects.get(job=job)
        assert "StepFailed" in attempt.error_class
        assert "card refused" in attempt.traceback

    def test_a_failure_that_is_caught_leads_the_same_way_in_every_replay(self) -> None:
        def flow() -> Any:
            way = step_tasks.takes_another_way()
            if current_job().attempt < 3:
                raise ValueError("again")
            return way

        job = run(flow)
        assert (job.status, job.result) == ("SUCCEEDED", "other")
        assert done() == {"first way": 1, "other way": 1}

    def test_a_kept_failure_tells_what_it_was(self) -> None:
        told = []

        def flow() -> None:
            try:
                step("charge", fails, "charge", "no money", max_attempts=2)
            except StepFailed as failure:
                told.append((failure.name, failure.tries, failure.error, type(failure.__cause__)))
                raise ValueError("again") from None

        run(flow)
        first, *others = told
        assert first == ("charge", 2, "ValueError: no money", ValueError)
        assert others == [("charge", 2, "ValueError: no money", type(None))] * 2

    def test_what_the_task_gives_up_on_its_steps_give_up_on(self) -> None:
        job = tasks_giving_up()
        assert done() == {"charge": 1}
        assert "failed after 1 try" in job.reason

    @pytest.mark.parametrize(
        ("ending", "status"),
        [("retry", "SCHEDULED"), ("snooze", "SCHEDULED"), ("cancel", "CANCELLED"), ("fail", "DEAD")],
    )
    def test_an_ending_raised_in_a_step_is_that_of_the_job_and_keeps_nothing(self, ending: str, status: str) -> None:
        job = run(lambda: step("step", raises_ending, ending))
        assert job.status == status
        assert steps_of(job) == []
        assert done() == {ending: 1}

    def test_a_result_that_is_not_json_fails_for_good_as_the_call_was_made(self) -> None:
        job = run(lambda: step("set", leaves, "set", {1, 2}))
        assert job.status == "DEAD"
        assert "failed after 1 try" in job.reason
        assert "pass sorted(value)" in job.reason
        assert done() == {"set": 1}

    def test_a_backoff_that_fails_puts_it_off_for_a_minute(self) -> None:
        def broken(attempt: int, error: BaseException) -> float:
            raise RuntimeError("no idea")

        job = run(lambda: step("flaky", fails_until, "flaky", 2, backoff=broken))
        assert job.status == "SCHEDULED"
        assert go_on(job, 61).status == "SUCCEEDED"


class TestAtomicSteps:
    def test_its_writes_are_undone_with_a_failed_try(self) -> None:
        def writes_and_fails() -> None:
            leaves("written")
            raise ValueError("it broke")

        job = run(lambda: step("write", writes_and_fails, atomic=True))
        assert job.status == "DEAD"
        assert done() == {}
        assert steps_of(job) == [("write", "failed", 3)]

    def test_its_writes_are_there_once_with_its_result(self) -> None:
        def flow() -> Any:
            result = step("write", leaves, "written", 5, atomic=True)
            if current_job().attempt == 1:
                raise ValueError("once")
            return result

        job = run(flow)
        assert job.result == 5
        assert done() == {"written": 1}
        assert steps_of(job) == [("write", "done", 1)]

    def test_its_function_may_save_checkpoints(self) -> None:
        def flow() -> Any:
            step("write", lambda: current_job().save_checkpoint("cursor", 3), atomic=True)
            return current_job().load_checkpoint("cursor")

        assert run(flow).result == 3


class TestPlace:
    @pytest.mark.parametrize(
        "ask", [lambda: step("a", leaves, "a"), lambda: sleep("a", 5), lambda: wait_for_event("a")]
    )
    def test_inside_a_transaction_it_raises_and_says_where_to_go(self, ask: Callable[[], Any]) -> None:
        def flow() -> None:
            with transaction.atomic():
                ask()

        job = run(flow, step_tasks.follows_once)
        assert job.status == "DEAD"
        assert "inside a transaction" in job.reason
        assert "move it out of `atomic()`" in job.reason
        assert done() == {}

    @pytest.mark.parametrize(
        "ask", [lambda: step("a", leaves, "a"), lambda: sleep("a", 5), lambda: wait_for_event("a")]
    )
    def test_in_an_atomic_task_it_raises_and_says_so(self, ask: Callable[[], Any]) -> None:
        job = run(ask, step_tasks.follows_atomically)
        assert job.status == "SCHEDULED" or job.status == "DEAD"
        assert "in an atomic task" in job.reason

    def test_inside_another_step_it_raises(self) -> None:
        job = run(lambda: step("outer", lambda: step("inner", leaves, "inner"), max_attempts=1))
        assert job.status == "DEAD"
        assert "step('inner') stands inside another step" in job.reason

    def test_outside_a_job_it_raises(self) -> None:
        with pytest.raises(RuntimeError, match="inside a running job only"):
            step("a", leaves, "a")

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("called", 7), r"write step\(name, function, argument\)"),
            (("async", tasks.asynchronous.function), "is a coroutine function"),
        ],
    )
    def test_what_is_no_plain_function_is_refused(self, arguments: tuple[Any, ...], told: str) -> None:
        refused(told, lambda: step(*arguments))

    @pytest.mark.parametrize("tries", [0, -1, 1.5, True, 40_000])
    def test_max_attempts_is_a_count(self, tries: Any) -> None:
        refused("max_attempts is a whole number", lambda: step("a", leaves, "a", max_attempts=tries))

    def test_undo_is_a_function_that_can_be_found_again(self) -> None:
        refused("must find both functions by their names", lambda: step("a", leaves, "a", undo=lambda result, name: 0))

    def test_arguments_of_a_step_with_undo_are_json(self) -> None:
        refused("the arguments of a step with undo", lambda: step("a", leaves, "a", {1}, undo=leaves))


def refused(told: str, ask: Callable[[], Any]) -> None:
    """Check that asking raises InvalidStep, and calls nothing."""

    def flow() -> None:
        with pytest.raises(InvalidStep, match=told):
            ask()

    assert run(flow).status == "SUCCEEDED"
    assert done() == {}


def tasks_giving_up() -> Any:
    return run(lambda: step("charge", fails, "charge"), step_tasks.gives_up)


def test_steps_of_another_exponential_wait_longer_and_longer() -> None:
    longer = exponential(first=10, factor=10, jitter=0)
    job = run(lambda: step("flaky", fails_until, "flaky", 3, backoff=longer))
    assert go_on(job, 11).status == "SCHEDULED"
    assert go_on(job, 60).status == "SCHEDULED"
    assert go_on(job, 112).status == "SUCCEEDED"


def test_a_job_that_may_start_once_may_be_put_off_by_its_steps() -> None:
    def flow() -> Any:
        step("flaky", fails_until, "flaky", 2, backoff=IN_A_MINUTE)
        sleep("nap", 10)
        return current_job().attempt

    job = run(flow, step_tasks.follows_once)
    go_on(job, 61)
    assert go_on(job, 72).result == 1
