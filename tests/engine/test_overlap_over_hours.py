"""A 90-minute job on an hourly schedule, under each overlap policy: a table written by hand."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from django_reliable_jobs.models import CancelRequest, Job, Schedule
from django_reliable_jobs.testing import tick
from tests.schedules import a_schedule, on, slots_of

pytestmark = pytest.mark.django_db

# overlap -> slot hour: (began, ended, status); None: no job.
EXPECTED = {
    "allow": {
        1: ("01:00", "02:30", "SUCCEEDED"),
        2: ("02:00", "03:30", "SUCCEEDED"),
        3: ("03:00", "04:30", "SUCCEEDED"),
        4: ("04:00", "05:30", "SUCCEEDED"),
        5: ("05:00", "06:30", "SUCCEEDED"),
    },
    "skip": {
        1: ("01:00", "02:30", "SUCCEEDED"),
        2: None,
        3: ("03:00", "04:30", "SUCCEEDED"),
        4: None,
        5: ("05:00", "06:30", "SUCCEEDED"),
    },
    "queue": {
        1: ("01:00", "02:30", "SUCCEEDED"),
        2: ("02:30", "04:00", "SUCCEEDED"),
        3: ("04:00", "05:30", "SUCCEEDED"),
        4: None,  # at 04:00 that of 03:00 still waits
        5: ("05:30", "07:00", "SUCCEEDED"),
    },
    "replace": {
        1: ("01:00", "02:00", "CANCELLED"),
        2: ("02:00", "03:00", "CANCELLED"),
        3: ("03:00", "04:00", "CANCELLED"),
        4: ("04:00", "05:00", "CANCELLED"),
        5: ("05:00", "06:30", "SUCCEEDED"),
    },
}


def work(moment: datetime) -> None:
    """What workers do at this moment: end what has run for 90 minutes or is to be cancelled, start what may start."""
    for job in Job.objects.filter(status="RUNNING"):
        if CancelRequest.objects.filter(job=job).delete()[0]:
            Job.objects.filter(pk=job.pk).update(status="CANCELLED", finished_at=moment)
        elif job.started_at is not None and moment - job.started_at >= timedelta(minutes=90):
            Job.objects.filter(pk=job.pk).update(status="SUCCEEDED", finished_at=moment)
    for job in Job.objects.filter(status="READY").order_by("run_after", "id"):
        in_turn = Job.objects.filter(status="RUNNING", serial_key=job.serial_key)
        if job.serial_key is None or not in_turn.exists():
            started = {"started_at": moment, "first_started_at": moment, "token": job.pk, "worker_id": 1, "claims": 1}
            Job.objects.filter(pk=job.pk).update(status="RUNNING", **started)


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "replace"])
def test_a_90_minute_job_on_an_hourly_schedule(overlap: str) -> None:
    Schedule.objects.all().delete()
    schedule = a_schedule(overlap=overlap, ends_at=on(2, 5))
    for half_hour in range(1, 16):
        moment = on(2) + half_hour * timedelta(minutes=30)
        tick(at=moment)
        work(moment)
    jobs = {
        job.slot.hour: (f"{job.started_at:%H:%M}", f"{job.finished_at:%H:%M}", job.status)
        for job in Job.objects.filter(schedule_id=schedule.pk)
        if job.slot and job.started_at and job.finished_at
    }
    assert {hour: jobs.get(hour) for hour in range(1, 6)} == EXPECTED[overlap]
    told = {on(2, hour): "overlap" if jobs.get(hour) is None else "job" for hour in range(1, 6)}
    assert slots_of(schedule) == told
