"""The undo of a step whose COMMIT is on the way in a session that was lost, and persons who act on one job at once."""

from __future__ import annotations

from typing import Any

import pytest

from django_reliable_jobs.engine import revival
from django_reliable_jobs.engine.steps import StepPort
from django_reliable_jobs.models import Checkpoint
from tests.actors import on_stage, wait_until_blocked
from tests.claims import row
from tests.engine.test_undo import breaks, run, undoing_job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("commits", "state", "tries"), [(True, "done", 1), (False, "trying", 2)])
def test_who_writes_that_an_undo_failed_waits_for_the_session_in_which_it_may_be_done(
    commits: bool, state: str, tries: int
) -> None:
    job: Any = undoing_job()
    port = StepPort("default", job_id=job.id, token=job.token, run=job.run, task=job.task)
    with on_stage("lost session", "attempt") as [lost, attempt]:
        lost.begins()
        assert lost.does(port.record_undo, "make a", "done", 1)
        late = attempt.starts(port.record_undo, "make a", "trying", 2, "OperationalError: the connection was lost")
        wait_until_blocked(attempt)
        if commits:
            lost.commits()
        else:
            lost.rolls_back()
        assert late.result(timeout=60) is not commits
    undone = Checkpoint.objects.get(name="make a")
    assert (undone.undo_state, undone.undo_tries, undone.undo_error is None) == (state, tries, commits)


@pytest.mark.parametrize("first", ["begins anew", "goes on undoing"])
def test_of_two_persons_who_decide_about_one_job_the_first_wins(first: str) -> None:
    job = run(breaks)
    assert job.compensation == "failed"

    def begin_anew() -> list[int]:
        return revival.revive("default", [job.pk], from_start=True).revived

    def go_on_undoing() -> list[int]:
        return revival.retry_undo("default", [job.pk])

    acts = [begin_anew, go_on_undoing] if first == "begins anew" else [go_on_undoing, begin_anew]
    with on_stage("one", "another") as [one, another]:
        one.begins()
        assert one.does(acts[0]) == [job.pk]
        late = another.starts(acts[1])
        wait_until_blocked(another)
        one.commits()
        assert late.result(timeout=60) == []
    expected = ("READY", "none", 2) if first == "begins anew" else ("READY", "running", 1)
    assert (row(job).status, row(job).compensation, row(job).run) == expected
