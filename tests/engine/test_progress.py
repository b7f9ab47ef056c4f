from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from django_reliable_jobs.engine import progress
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.progress import Report
from django_reliable_jobs.models import Job, Progress
from django_reliable_jobs.processes.reporting import as_text, write_progress
from django_reliable_jobs.progress import Progress as Said
from tests import batch_tasks, tasks
from tests.actors import on_stage
from tests.claims import claim_one_as, replace, row
from tests.recorded import run_jobs

pytestmark = pytest.mark.django_db


def a_report(job: ClaimedJob, done: int = 1, total: int | None = 10, **changes: Any) -> Report:
    given = {"skipped": 0, "rate": 2.0, "message": "", **changes}
    return Report(token=job.token, job_id=job.id, run=job.run, claim=job.claims, done=done, total=total, **given)


def a_claimed_job() -> ClaimedJob:
    tasks.nothing.enqueue()
    return claim_one_as(1)


def shown(job: ClaimedJob) -> Progress | None:
    return progress.of_job("default", row(job))


def test_many_are_written_in_one_statement(django_assert_num_queries: Any) -> None:
    jobs = [a_claimed_job() for _ in range(3)]
    with django_assert_num_queries(3):  # savepoint, statement, release
        progress.write("default", [a_report(job, done) for done, job in enumerate(jobs)])
    assert [each.done for each in map(shown, jobs) if each] == [0, 1, 2]


def test_the_last_report_stands() -> None:
    job = a_claimed_job()
    progress.write("default", [a_report(job, 1, None)])
    progress.write("default", [a_report(job, 5, 10, skipped=2, rate=None, message="half\0way")])
    found = shown(job)
    assert found is not None
    assert (found.done, found.total, found.skipped, found.rate, found.message) == (5, 10, 2, None, "half\ufffdway")
    assert Progress.objects.count() == 1


def test_what_a_replaced_attempt_writes_is_never_shown() -> None:
    first = a_claimed_job()
    progress.write("default", [a_report(first, 9)])
    second = replace(first)
    assert shown(second) is None
    progress.write("default", [a_report(first, 10)])
    assert shown(second) is None
    progress.write("default", [a_report(second, 3)])
    found = shown(second)
    assert found is not None
    assert found.done == 3
    assert {claim: each.done for claim, each in progress.of_claims("default", first.id, [1, 2]).items()} == {
        1: 10,
        2: 3,
    }


def test_a_new_run_shows_nothing_of_the_one_before() -> None:
    job = a_claimed_job()
    progress.write("default", [a_report(job)])
    Job.objects.filter(pk=job.id).update(run=2)
    assert shown(job) is None


def test_of_a_job_that_is_gone_nothing_is_written() -> None:
    job = a_claimed_job()
    Job.objects.filter(pk=job.id).delete()
    progress.write("default", [a_report(job)])
    assert not Progress.objects.exists()


def test_time_left_follows_from_the_rate() -> None:
    assert Progress(done=10, total=50, rate=4).time_left.total_seconds() == 10  # type: ignore[union-attr]
    assert Progress(done=60, total=50, rate=4).time_left.total_seconds() == 0  # type: ignore[union-attr]
    assert Progress(done=10, total=None, rate=4).time_left is None
    assert Progress(done=10, total=50, rate=0).time_left is None


@pytest.mark.parametrize(
    ("enqueue", "done"),
    [
        (lambda: batch_tasks.tell.enqueue(5, 10, "half"), 5),
        (lambda: batch_tasks.tell_atomically.enqueue(7), 7),
        (lambda: batch_tasks.tell_and_fail.enqueue(10), 30),
    ],
)
def test_the_last_progress_stays_with_the_job_that_ended(enqueue: Any, done: int) -> None:
    job = enqueue()
    run_jobs()
    job.refresh_from_db()
    assert job.has_ended
    found = progress.of_job("default", job)
    assert found is not None
    assert found.done == done


def test_each_failed_attempt_keeps_how_far_it_had_come() -> None:
    job = batch_tasks.tell_and_fail.enqueue(10)
    run_jobs()
    found = progress.of_claims("default", job.pk, [1, 2, 3])
    assert {claim: each.done for claim, each in found.items()} == {1: 10, 2: 20, 3: 30}


def test_it_is_written_when_there_is_news_and_in_words_for_the_log(django_assert_num_queries: Any) -> None:
    job, said = a_claimed_job(), Said()
    assert as_text(said) == ""
    with django_assert_num_queries(0):
        write_progress("default", [(job, said)])
    said.count(12_000, None, 0)
    assert as_text(said) == ", 12,000 done"
    said.count(12_000, 30_000, 5)
    assert as_text(said) == ", 12,000 of 30,000 done, 5 skipped"
    write_progress("default", [(job, said)])
    with django_assert_num_queries(0):
        write_progress("default", [(job, said)])


@pytest.mark.django_db(transaction=True)
def test_who_locks_the_job_does_not_hold_it_up() -> None:
    job = a_claimed_job()
    with on_stage("holder") as [holder]:
        holder.begins()
        holder.does(lambda: list(Job.objects.select_for_update().filter(pk=job.id)))
        progress.write("default", [a_report(job, 4)])
        holder.commits()
    assert Progress.objects.get().done == 4


@pytest.mark.django_db(transaction=True)
def test_who_locks_the_table_costs_a_report_and_it_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    job, said = a_claimed_job(), Said()
    said.say(4)
    with on_stage("holder") as [holder]:
        holder.begins()
        holder.does(_lock_table)
        write_progress("default", [(job, said)])
        assert "progress of 1 jobs is not written" in caplog.text
        holder.commits()
    write_progress("default", [(job, said)])
    assert Progress.objects.get().done == 4


def _lock_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE django_reliable_jobs_progress")


@pytest.mark.django_db(transaction=True)
def test_a_lost_connection_is_told_and_the_report_is_written_later() -> None:
    job, said = a_claimed_job(), Said()
    said.say(4)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    connection.connection.close()
    with pytest.raises(OperationalError):
        write_progress("default", [(job, said)])
    connection.close()
    write_progress("default", [(job, said)])
    assert Progress.objects.get().done == 4
