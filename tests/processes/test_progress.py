"""Progress of jobs in a real worker: written while they run, and the last of it before they have ended."""

from __future__ import annotations

import pytest
from django.db import connection

from django_reliable_jobs.engine import progress
from django_reliable_jobs.models import Job, Progress
from django_reliable_jobs.progress import Said
from tests import batch_tasks, tasks
from tests.actors import on_stage, wait_for
from tests.processes.test_fencing import LEASE, StartWorker
from tests.processes.test_tally import heard, run_worker


def test_progress_is_written_while_the_job_runs(start_worker: StartWorker) -> None:
    job = batch_tasks.tell_until_stopped.enqueue()
    start_worker()
    wait_for(lambda: Progress.objects.filter(job=job, done__gt=0).exists(), what="a first report")
    first = Progress.objects.get()
    wait_for(lambda: Progress.objects.filter(done__gt=first.done).exists(), what="a second report")
    second = Progress.objects.get()
    assert 0.5 < (second.told_at - first.told_at).total_seconds() < 10
    assert second.rate is not None
    assert 10 < second.rate < 1000, "about one in a millisecond and a bit"
    assert second.message == f"at {second.done}"
    job.refresh_from_db()
    assert (job.status, job.token) == ("RUNNING", second.token)


def test_the_last_progress_is_there_when_the_job_has_ended(start_worker: StartWorker) -> None:
    start_worker()
    jobs = [batch_tasks.tell.enqueue(number, 100, f"at {number}") for number in range(50)]
    for number, job in enumerate(jobs):
        job.wait(timeout=20)
        found = progress.of_job("default", job)
        assert found is not None
        assert (found.done, found.total, found.message) == (number, 100, f"at {number}")


@pytest.mark.django_db(transaction=True)
def test_the_signal_of_its_end_carries_it_and_so_does_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="django_reliable_jobs")
    told = batch_tasks.tell.enqueue(5, 10, "half")
    silent = tasks.nothing.enqueue()
    with heard("succeeded") as signals:
        run_worker()
    said = {facts["job_id"]: facts["progress"] for _, facts in signals}
    assert said == {told.pk: Said(5, 10, "half"), silent.pk: None}
    [line] = [each for each in caplog.messages if f"job {told.pk} " in each and "SUCCEEDED" in each]
    assert line.endswith(" s, 5 of 10 done")


def test_a_locked_table_of_progress_costs_no_lease(start_worker: StartWorker) -> None:
    job = batch_tasks.tell_until_stopped.enqueue()
    worker = start_worker(settings=LEASE)
    wait_for(lambda: Progress.objects.exists(), what="a first report")
    before = worker.row
    assert before is not None
    with on_stage("holder") as [holder]:
        holder.begins()
        holder.does(_lock_table)
        wait_for(
            lambda: (
                worker.row
                and (worker.row.heartbeat_at - before.heartbeat_at).total_seconds() > 2 * LEASE["LEASE_SECONDS"]
            ),
            what="the lease to be renewed for twice its length",
        )
        holder.commits()
    assert worker.row is not None
    assert worker.row.pk == before.pk
    job.refresh_from_db()
    assert (job.status, job.claims) == ("RUNNING", 1)
    seen = Progress.objects.get().done
    wait_for(lambda: Progress.objects.get().done > seen, what="progress to be written again")
    assert Job.objects.get(pk=job.pk).status == "RUNNING"


def _lock_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE django_reliable_jobs_progress IN SHARE MODE")
