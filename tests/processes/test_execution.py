"""What comes of an attempt: the moment at which its job is due again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from django_reliable_jobs import Retry, Snooze, Task
from django_reliable_jobs.context import StopFlag
from django_reliable_jobs.engine import maintenance
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes import execution, judging
from django_reliable_jobs.processes.execution import call_here
from tests import interrupted_tasks, tasks
from tests.claims import claim_one_as, end, row

pytestmark = pytest.mark.django_db

HOWS = ["retry", "snooze"]


@pytest.fixture(params=[timedelta(hours=-2), timedelta(hours=2)], ids=["late", "early"])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's clock goes late, or early, by two hours."""
    wrong = SimpleNamespace(now=lambda: datetime.now(UTC) + request.param)
    monkeypatch.setattr(judging, "timezone", wrong)


def run_once(how: str, moment: datetime) -> Any:
    """Return the row of a job after its first attempt."""
    interrupted_tasks.again_at.enqueue(how, moment.isoformat())
    job = claim_one_as(1)
    assert end(job, execution.execute(job, StopFlag(), using="default", call=call_here, leave=lambda: None))
    return row(job)


@pytest.mark.usefixtures("wrong_clock")
@pytest.mark.parametrize("how", HOWS)
def test_a_moment_that_a_task_names_is_kept_whatever_the_host_s_clock_says(how: str) -> None:
    moment = timezone.now() + timedelta(hours=1)
    job = run_once(how, moment)
    assert (job.status, job.run_after) == ("SCHEDULED", moment)


@pytest.mark.usefixtures("wrong_clock")
@pytest.mark.parametrize("how", HOWS)
def test_a_moment_that_is_past_puts_the_job_behind_those_that_wait(how: str) -> None:
    tasks.nothing.using(priority=-1).enqueue()
    job = run_once(how, datetime(2020, 1, 1, tzinfo=UTC))
    assert job.run_after > Job.objects.get(priority=-1).run_after
    assert maintenance.promote("default") == 1, "it is due"


@pytest.mark.parametrize("ending", [Retry, Snooze])
def test_a_moment_without_a_time_zone_is_refused_with_the_way_out(ending: type[Retry | Snooze]) -> None:
    with pytest.raises(ValueError, match=rf"{ending.__name__}\(2030-01-01T00:00:00\) does not say .*make_aware\(…\)"):
        ending(datetime(2030, 1, 1))
    assert ending(datetime(2030, 1, 1, tzinfo=UTC)).after == datetime(2030, 1, 1, tzinfo=UTC)


def test_the_log_of_a_dead_job_shows_the_task_s_own_frames_and_none_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    tasks.fails.enqueue("out of paper")
    Job.objects.update(max_attempts=1)
    job = claim_one_as(1)
    assert end(job, execution.execute(job, StopFlag(), using="default", call=call_here, leave=lambda: None))
    assert row(job).status == "DEAD"
    assert "ValueError: out of paper" in caplog.text
    assert "tests/tasks.py" in caplog.text
    assert "django_reliable_jobs/processes" not in caplog.text


def test_the_log_of_a_job_whose_task_is_unknown_says_where_a_worker_looks(caplog: pytest.LogCaptureFixture) -> None:
    tasks.nothing.enqueue()
    Job.objects.update(task="shop.work.charge")
    outcome = execution.execute(claim_one_as(1), StopFlag(), using="default", call=call_here, leave=lambda: None)
    assert outcome.status == "SCHEDULED"
    assert "'shop.work.charge', which this worker does not know" in caplog.text
    assert "TASK_MODULES" in caplog.text


@pytest.mark.parametrize(
    ("task", "arguments", "level"),
    [
        (tasks.once_fails, [], "ERROR"),
        (tasks.returns_an_object, [], "ERROR"),
        (tasks.ends_by, ["fail"], "WARNING"),  # it was the task's own decision
    ],
    ids=["an error", "a result that is none", "Fail"],
)
def test_whatever_a_job_dies_of_the_log_says_so_once(
    task: Task[..., Any], arguments: list[str], level: str, caplog: pytest.LogCaptureFixture
) -> None:
    task.enqueue(*arguments)
    job = claim_one_as(1)
    assert end(job, execution.execute(job, StopFlag(), using="default", call=call_here, leave=lambda: None))
    assert row(job).status == "DEAD"
    [record] = [each for each in caplog.records if each.name == "django_reliable_jobs"]
    assert record.getMessage() == f"job {job.id} ({job.task}) is dead after attempt 1: {row(job).reason}"
    assert record.levelname == level


def test_the_log_says_so_too_of_a_job_that_may_not_start_again_and_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    tasks.once.enqueue()
    outcome = judging.cut_off(claim_one_as(1), StopFlag())
    assert outcome.status == "DEAD"
    assert f"is dead after attempt 1: {outcome.reason}" in caplog.text
