"""What the documentation tells to do with a copy of production keeps its jobs from running."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.db import connection

from django_reliable_jobs import Every
from django_reliable_jobs.engine import schedules
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.schedule_options import ScheduleOptions
from tests import step_tasks, tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.pages import DOCS, blocks_of
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def test_nothing_of_a_copied_database_runs(start_worker: StartWorker) -> None:
    Schedule.objects.all().delete()
    waiting = step_tasks.waits.enqueue("never")
    worker = start_worker()
    wait_for(lambda: Job.objects.filter(pk=waiting.pk, status="WAITING").exists(), what="it to wait")
    running = tasks.slow.enqueue(60)
    wait_for(lambda: Job.objects.filter(pk=running.pk, status="RUNNING").exists(), what="it to run")
    worker.kill()
    effects = Effect.objects.count()
    tasks.effect.enqueue("ready")
    tasks.effect.using(run_after=timedelta(seconds=1)).enqueue("later")
    schedules.create(
        "default", name="s", task="tests.tasks.nothing", options=ScheduleOptions(recurrence=Every(seconds=1))
    )
    [copied] = [block.code for block in blocks_of(DOCS / "how-to" / "backup-and-restore.md") if block.runs]
    with connection.cursor() as cursor:
        cursor.execute(copied)
    on_the_copy = start_worker("--with-scheduler")
    fresh = tasks.effect.enqueue("made on the copy")
    wait_for(lambda: Job.objects.get(pk=fresh.pk).has_ended, what="the fresh job to run")
    later = tasks.effect.using(run_after=timedelta(seconds=2)).enqueue("later than all that was copied")
    wait_for(lambda: Job.objects.get(pk=later.pk).has_ended, what="the later job to run")
    assert Effect.objects.count() == effects + 2
    assert set(Job.objects.exclude(pk__in=[fresh.pk, later.pk]).values_list("status", flat=True)) == {"CANCELLED"}
    assert not on_the_copy.has_ended
