"""What a project gets wrong ends its job, and neither a worker nor the jobs beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from django.db import connection
from django.db.models import F

from django_reliable_jobs.engine import maintenance
from django_reliable_jobs.models import Job
from tests import tasks
from tests.actors import wait_for
from tests.factories import SucceededJobFactory
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def test_an_on_dead_that_can_not_be_enqueued_does_not_keep_the_job_alive(start_worker: StartWorker) -> None:
    job = tasks.dies_and_is_buried.enqueue()
    beside = tasks.effect.enqueue("beside")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no burials'; END $$;"
            "CREATE TRIGGER refuse BEFORE INSERT ON django_reliable_jobs_job FOR EACH ROW"
            " WHEN (NEW.task = 'tests.tasks.bury') EXECUTE FUNCTION refuse()"
        )
    try:
        worker = start_worker("--burst")
        assert worker.wait() == 0, worker.output
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse() CASCADE")
    job.refresh_from_db()
    beside.refresh_from_db()
    assert (job.status, beside.status) == ("DEAD", "SUCCEEDED")
    assert "can't be enqueued" in worker.output


def test_an_error_whose_class_has_an_impossible_name_is_recorded(start_worker: StartWorker) -> None:
    job = tasks.raises_a_class_with_a_bad_name.enqueue()
    assert start_worker("--burst").wait() == 0
    job.refresh_from_db()
    assert job.status == "DEAD"
    assert job.attempts.get().error_class == "a\ufffdb.Bad"


def test_a_snooze_beyond_all_reason_fails_the_attempt(start_worker: StartWorker) -> None:
    job = tasks.snoozes_for_ever.enqueue()
    assert start_worker("--burst").wait() == 0
    job.refresh_from_db()
    assert job.status in ("SCHEDULED", "DEAD")
    assert job.run_after.year < 2200


def test_what_has_started_in_time_does_not_expire_between_its_attempts(start_worker: StartWorker) -> None:
    start_worker()
    job = tasks.expires_between_attempts.enqueue()
    wait_for(lambda: Job.objects.filter(pk=job.pk, status="SCHEDULED").exists(), what="the first attempt to fail")
    an_hour = timedelta(hours=1)
    Job.objects.update(run_after=F("run_after") - an_hour, expires_at=F("expires_at") - an_hour)  # as if it had passed
    assert job.wait(timeout=30) == 2


def test_turns_are_fair_also_between_queues_with_many_priorities(start_worker: StartWorker) -> None:
    for queue in ("a", "b"):
        for priority in (0, 1, 2):
            tasks.effect.using(queue_name=queue, priority=priority).enqueue_many([{"name": queue}] * 40)
    assert start_worker("--threads", "1", "--burst", "--queue", "a=1", "--queue", "b=1").wait() == 0
    names = list(Effect.objects.order_by("id").values_list("name", flat=True))
    assert Counter(names) == {"a": 120, "b": 120}
    assert abs(Counter(names[:120])["a"] - 60) <= 12


def test_a_job_that_the_project_refers_to_does_not_keep_others_from_being_pruned(transactional_db: None) -> None:
    kept = SucceededJobFactory(finished_at="2020-01-01T00:00:00Z")
    cancelled = tasks.effect.enqueue("x")
    Job.objects.filter(pk=cancelled.pk).update(status="CANCELLED", finished_at="2020-01-01T00:00:00Z")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE refers (job_id bigint REFERENCES django_reliable_jobs_job (id))")
        cursor.execute("INSERT INTO refers VALUES (%s)", [kept.pk])
    try:
        maintenance.prune("default")
        assert list(Job.objects.values_list("pk", flat=True)) == [kept.pk]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE refers")


def test_a_burst_whose_children_can_not_start_ends(start_worker: StartWorker) -> None:
    supervisor = start_worker(
        "--processes", "2", "--burst", ready=False, environment={"TESTS_BREAK_CHILDREN": "RELIABLE_JOBS_VITALS"}
    )
    assert supervisor.wait(timeout=60) == 1
    assert "can't start" in supervisor.output
