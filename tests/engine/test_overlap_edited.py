"""A schedule whose overlap is forbidden while its jobs run side by side."""

from __future__ import annotations

import pytest

from django_reliable_jobs.engine import schedules
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.testing import at, run_jobs, tick
from tests.schedules import a_schedule, jobs_of, on


@pytest.mark.django_db
@pytest.mark.parametrize("overlap", ["queue", "replace", "skip"])
def test_forbidding_overlap_holds_for_jobs_that_were_made_before(overlap: str) -> None:
    Schedule.objects.all().delete()
    schedule = a_schedule(overlap="allow")
    [first], [second] = tick(at=on(2, 1)), tick(at=on(2, 2))
    running = {"status": "RUNNING", "token": 1, "worker_id": 1, "claims": 1, "started_at": on(2, 1)}
    Job.objects.filter(pk=first.pk).update(first_started_at=on(2, 1), **running)
    Job.objects.filter(pk=second.pk).update(status="SUCCEEDED", finished_at=on(2, 2))
    other = Job.objects.create(task="tests.tasks.nothing")
    schedules.edit("default", schedule.pk, overlap=overlap)
    keys = dict(Job.objects.values_list("pk", "serial_key"))
    assert keys == {first.pk: f"schedule:{schedule.pk}", second.pk: None, other.pk: None}
    tick(at=on(2, 3))
    new = Job.objects.filter(schedule_id=schedule.pk, slot=on(2, 3)).first()
    assert (new is None) == (overlap == "skip")
    with at(on(2, 3, 1)):
        run_jobs()
        assert jobs_of(schedule).get(on(2, 3)) in (None, "READY"), "it waits for the end of the older one"
        Job.objects.filter(pk=first.pk).update(status="SUCCEEDED", finished_at=on(2, 3))
        run_jobs()
    assert jobs_of(schedule).get(on(2, 3)) in (None, "SUCCEEDED")
