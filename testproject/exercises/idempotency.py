"""Exercise 3: the same job twice, and a job whose worker is killed at the worst moment."""

from __future__ import annotations

from django_reliable_jobs.models import Job
from testproject.exercises.stage import Timeline, expect, manage, schema, value, wait_for, wait_until_there
from testproject.exercises.tasks import careful, careless

TABLES = (
    "CREATE TABLE exercise.letter (night date)",
    "CREATE TABLE exercise.invoice (night date PRIMARY KEY)",
)
FIRST, SECOND = "2026-03-01", "2026-03-02"


def run(timeline: Timeline) -> None:
    """Go through two scenes with a real worker; the jobs of the exercise are deleted at the end."""
    Job.objects.filter(queue_name="exercise").delete()
    with schema(*TABLES), manage("runworker", "--queue", "exercise", "--processes", "2", "--threads", "1"):
        wait_until_there()
        twice(timeline)
        killed(timeline)
    Job.objects.filter(queue_name="exercise").delete()


def twice(timeline: Timeline) -> None:
    """Somebody clicked twice."""
    timeline.scene("1. The same job is enqueued twice")
    for task in (careless, careful):
        for _ in range(2):
            result = job_ends(task.enqueue(FIRST))
            timeline.say(task.function.__name__, result)
    show(timeline, FIRST, letters=2)


def killed(timeline: Timeline) -> None:
    """The work is done, and nobody knows."""
    timeline.scene("2. Its worker is killed after the work, and before the success is recorded")
    for task in (careless, careful):
        job = task.enqueue(SECOND, dies=True)
        wait_for(lambda job=job: job.attempts.filter(outcome="lost").exists(), "the loss to be noticed")
        timeline.say(task.function.__name__, "killed; the supervisor gives the job back")
        timeline.say(task.function.__name__, f"runs again: {job_ends(job)}")
    show(timeline, SECOND, letters=2)


def job_ends(job: Job) -> str:
    wait_for(lambda: Job.objects.filter(pk=job.pk, status="SUCCEEDED").exists(), f"job {job.pk} to succeed")
    return str(Job.objects.get(pk=job.pk).result)


def show(timeline: Timeline, night: str, *, letters: int) -> None:
    written = value("SELECT count(*) FROM exercise.letter WHERE night = %s", night)
    invoices = value("SELECT count(*) FROM exercise.invoice WHERE night = %s", night)
    expect((written, invoices) == (letters, 1), f"{letters} letters and one invoice")
    timeline.conclude(f"careless: {written} letters; careful: {invoices} invoice")
