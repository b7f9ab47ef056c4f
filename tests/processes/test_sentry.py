"""Sentry hears of what jobs die of, as of the errors of a view, by its own means: nothing is to be set up for jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tasks
from tests.workers import WorkerProcess

pytest.importorskip("sentry_sdk", reason="sentry-sdk is not installed")


@pytest.mark.django_db(transaction=True)
def test_a_dead_jobs_exception_arrives_once_and_names_its_job(
    start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    arrived = tmp_path / "events"
    arrived.touch()
    dead = tasks.once_fails.enqueue()
    tasks.ends_by.enqueue("retry", 0)
    worker = start_worker("--burst", ready=False, environment={"TESTS_SENTRY_FILE": str(arrived)})
    assert worker.wait() == 0, worker.output
    events = [json.loads(line) for line in arrived.read_text().splitlines()]
    [event] = [each for each in events if each["extra"]["job_id"] == dead.pk]
    assert (event["logger"], event["level"]) == ("django_reliable_jobs", "error")
    assert (event["extra"]["task"], event["extra"]["attempt"]) == ("tests.tasks.once_fails", 1)
    [exception] = event["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("ValueError", "it broke")
    assert exception["stacktrace"]["frames"][-1]["function"] == "once_fails", "its end is the task, not the package"
    assert len(events) == 2, "one for each job that died, none for an attempt that is tried again"
