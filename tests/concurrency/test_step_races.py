"""Steps of attempts that were replaced, and of connections that were lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_reliable_jobs import step
from django_reliable_jobs.context import StopFlag
from django_reliable_jobs.engine import exchange, lifecycle, maintenance
from django_reliable_jobs.engine.lifecycle import Ending, Outcome
from django_reliable_jobs.engine.steps import StepPort
from django_reliable_jobs.exceptions import LeaseLost
from django_reliable_jobs.models import Checkpoint
from django_reliable_jobs.processes.execution import call_here, execute
from django_reliable_jobs.step_port import StepRecord
from tests import step_tasks, tasks
from tests.actors import on_stage
from tests.claims import claim_one_as, let_lease_run_out, replace, row
from tests.lost_answers import lose_the_answer_to_the_next_commit
from tests.models import Effect
from tests.step_tasks import leaves

pytestmark = pytest.mark.django_db(transaction=True)


def port_of(job: Any) -> StepPort:
    return StepPort("default", job_id=job.id, token=job.token, run=job.run, task=job.task)


def run(job: Any) -> Outcome:
    """Run a claimed job in this thread and record how it ended."""
    outcome = execute(job, StopFlag(), using="default", call=call_here, leave=lambda: None)
    ending = [Ending(job.id, job.token, outcome)]
    if outcome.status == "SUCCEEDED":
        exchange.exchange("default", 0, ending)
    else:
        lifecycle.end("default", ending, worker="test:0")
    return outcome


RECORD = StepRecord("charge", "shop:charge", "done", "1")


@pytest.mark.parametrize("write", ["record", "sleep", "wait"])
def test_a_replaced_attempt_writes_nothing_of_its_steps(write: str) -> None:
    step_tasks.follows.enqueue()
    first = claim_one_as(1)
    second = replace(first)
    with pytest.raises(LeaseLost):
        {
            "record": lambda: port_of(first).record(RECORD),
            "sleep": lambda: port_of(first).sleep("nap", 60.0),
            "wait": lambda: port_of(first).wait_for_event("paid", "paid", None),
        }[write]()
    assert not Checkpoint.objects.exists()
    port_of(second).record(RECORD)
    assert Checkpoint.objects.get().token == second.token


def test_an_attempt_that_is_replaced_during_a_step_drops_its_result() -> None:
    def loses_its_lease() -> str:
        leaves("called")
        replace(first)
        return "too late"

    step_tasks.flow = lambda: step("charge", loses_its_lease)
    step_tasks.follows.enqueue()
    first = claim_one_as(1)
    run(first)
    assert not Checkpoint.objects.exists()
    assert row(first).status == "RUNNING"  # in the hands of the second


def test_the_rescue_passes_over_a_record_that_commits_and_the_next_attempt_has_it() -> None:
    step_tasks.flow = lambda: step("charge", leaves, "charge", 7)
    step_tasks.follows.enqueue()
    first = claim_one_as(1)
    with on_stage("attempt", "rescuer") as [attempt, rescuer]:
        attempt.begins()
        attempt.does(port_of(first).record, RECORD._replace(value="7", function="tests.step_tasks:leaves"))
        let_lease_run_out(first)
        assert rescuer.does(maintenance.rescue, "default") == 0
        attempt.commits()
        assert rescuer.does(maintenance.rescue, "default") == 1
    assert row(first).losses == 1
    second = claim_one_as(2)
    assert run(second).result == "7"
    assert not Effect.objects.exists()


def test_a_connection_that_was_lost_during_a_step_costs_no_second_call() -> None:
    def loses_its_connection() -> int:
        leaves("called")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pid = cursor.fetchone()[0]
        with on_stage("administrator") as [administrator]:
            administrator.does(terminate, pid)
        return 7

    step_tasks.flow = lambda: step("charge", loses_its_connection)
    step_tasks.follows.enqueue()
    assert run(claim_one_as(1)).result == "7"
    assert Effect.objects.count() == 1


@pytest.fixture
def answer_to_commit_is_lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the next COMMIT happen, and break the connection before its answer."""
    lost = lose_the_answer_to_the_next_commit(monkeypatch)
    yield
    assert lost


@pytest.mark.usefixtures("answer_to_commit_is_lost")
def test_an_atomic_step_whose_commit_was_not_answered_is_read_back() -> None:
    step_tasks.flow = lambda: step("write", leaves, "written", 5, atomic=True)
    step_tasks.follows.enqueue()
    job = claim_one_as(1)
    connection.close()
    assert run(job).result == "5"
    assert Effect.objects.count() == 1
    assert Checkpoint.objects.get().tries == 1


def terminate(pid: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])


def test_a_step_that_is_done_stays_done_though_its_timeout_comes_after_the_commit() -> None:
    tasks.nothing.enqueue()
    port = port_of(claim_one_as(1))
    port.record(StepRecord("charge", "charge_card", "done", '"kept"', tries=1))
    port.record(StepRecord("charge", "charge_card", "failed", tries=2, error="TimeoutError"))
    saved = Checkpoint.objects.get()
    assert (saved.state, saved.value, saved.tries, saved.error) == ("done", "kept", 1, None)
