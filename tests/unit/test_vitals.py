"""What a supervisor can tell of a worker process that is gone."""

from __future__ import annotations

from pathlib import Path

from django_reliable_jobs.processes.intake import MOST_IN_HAND
from django_reliable_jobs.processes.vitals import SLOTS, Vitals


def test_it_knows_each_job_that_had_begun_however_many_a_worker_holds(tmp_path: Path) -> None:
    supervisor = Vitals.create(tmp_path / "vitals")
    worker = Vitals.open(tmp_path / "vitals")
    written, running = range(1, MOST_IN_HAND + 1), range(MOST_IN_HAND + 1, 2 * MOST_IN_HAND + 1)
    for token in (*written, *running):  # what has ended is forgotten only while the next are at work
        worker.started(token)
    assert supervisor.started_tokens == {*written, *running}
    worker.settled(written)
    assert supervisor.started_tokens == set(running)


def test_of_more_than_there_is_room_for_it_says_that_it_does_not_know(tmp_path: Path) -> None:
    supervisor = Vitals.create(tmp_path / "vitals")
    worker = Vitals.open(tmp_path / "vitals")
    for token in range(1, SLOTS + 2):
        worker.started(token)
    assert supervisor.started_tokens is None
