from __future__ import annotations

import io
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db.models.functions import Now
from django.utils import timezone

from django_reliable_jobs.engine import lifecycle, revival
from django_reliable_jobs.management.jobs import changing
from django_reliable_jobs.models import CancelRequest, Job, Queue
from tests import tasks
from tests.edges.jobs_command import Terminal, failing, jobs, jobs_json
from tests.recorded import run_jobs
from tests.states import a_dead_job, a_finished_job, a_running_job, status_of

pytestmark = pytest.mark.django_db


class TestRetry:
    def test_a_dead_job_is_ready_again(self) -> None:
        job = a_dead_job()
        assert jobs("retry", job.pk) == f"Ready again: {job.pk}\n"
        assert status_of(job) == "READY"

    def test_what_could_not_be_retried_is_named_and_the_others_are_retried(self) -> None:
        dead, ready, running = a_dead_job(), tasks.nothing.enqueue(), a_running_job()
        text, failure = failing("retry", dead.pk, ready.pk, running.pk, 2**62)
        assert text == f"Ready again: {dead.pk}\n"
        assert failure == (
            f"Not retried: 3 of 4. {ready.pk} is READY and has not ended."
            f" {running.pk} is RUNNING and has not ended. There is no job: {2**62}."
        )
        assert status_of(dead) == "READY"

    def test_a_job_whose_key_a_live_job_holds_stays_dead(self) -> None:
        job = tasks.unique.enqueue("key")
        Job.objects.update(status="DEAD", finished_at=Now())
        tasks.unique.enqueue("key")
        assert failing("retry", job.pk)[1] == f"Not retried: 1 of 1. A live job holds the unique key of: {job.pk}."
        assert status_of(job) == "DEAD"

    def test_dead_letters_are_retried_by_task_and_queue_in_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(changing, "BATCH", 2)
        wanted = [tasks.once.using(queue_name="mail").enqueue() for _ in range(5)]
        others = [tasks.once.enqueue(), tasks.nothing.using(queue_name="mail").enqueue()]
        Job.objects.update(status="DEAD", finished_at=Now())
        assert jobs(
            *("retry", "--status", "DEAD", "--task", "tests.tasks.once", "--queue", "mail", "--yes")
        ) == "Ready again: 5.\n"  # fmt: skip
        assert {status_of(job) for job in wanted} == {"READY"}
        assert {status_of(job) for job in others} == {"DEAD"}

    def test_what_moved_on_before_it_was_reached_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = a_dead_job(), a_dead_job()
        holder = tasks.unique.enqueue("key")
        Job.objects.filter(pk=holder.pk).update(status="DEAD", finished_at=Now())
        tasks.unique.enqueue("key")

        def revive_after_somebody_else(using: str, ids: list[int], *, from_start: bool) -> revival.Revived:
            monkeypatch.undo()
            revival.revive(using, [second.pk])
            return revival.revive(using, ids)

        monkeypatch.setattr(revival, "revive", revive_after_somebody_else)
        counts = {"retried": 1, "live_duplicate": 1, "not_undone": 0, "moved_on": 1}
        assert jobs_json("retry", "--status", "DEAD", "--yes") == counts
        assert status_of(first) == "READY"

    def test_a_job_that_dies_again_meanwhile_is_not_retried_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(changing, "BATCH", 1)
        for _ in range(3):
            a_dead_job()
        revive = revival.revive

        def revive_and_die(using: str, ids: list[int], *, from_start: bool) -> revival.Revived:
            done = revive(using, ids)
            Job.objects.filter(pk__in=ids).update(status="DEAD", finished_at=Now())
            a_dead_job()
            return done

        monkeypatch.setattr(revival, "revive", revive_and_die)
        assert jobs_json("retry", "--status", "DEAD", "--yes")["retried"] == 3

    def test_without_yes_nobody_to_ask_means_no_change(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job = a_dead_job()
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        assert "Add --yes" in failing("retry", "--status", "DEAD")[1]
        assert status_of(job) == "DEAD"

    @pytest.mark.parametrize(("answer", "status"), [("y", "READY"), ("n", "DEAD"), ("", "DEAD")])
    def test_without_yes_the_answer_counts(self, monkeypatch: pytest.MonkeyPatch, answer: str, status: str) -> None:
        job = a_dead_job()
        monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
        monkeypatch.setattr("sys.stdout", io.StringIO())  # where input() asks
        if status == "DEAD":
            assert failing("retry", "--status", "DEAD")[1] == "Nothing was changed."
        else:
            jobs("retry", "--status", "DEAD")
        assert status_of(job) == status

    def test_from_start_begins_a_new_run(self) -> None:
        dead, waiting = a_dead_job(), tasks.fails.enqueue()
        run_jobs()
        Job.objects.filter(pk=dead.pk).update(attempt=3, claims=3)
        jobs("retry", dead.pk, waiting.pk, "--from-start")
        for job in (dead, waiting):
            job.refresh_from_db()
            assert (job.status, job.run, job.attempt) == ("READY", 2, 0)
        Job.objects.update(status="DEAD", finished_at=Now())
        jobs("retry", "--status", "DEAD", "--yes", "--from-start")
        assert {job.run for job in Job.objects.all()} == {3}

    def test_otherwise_the_run_goes_on(self) -> None:
        job = a_dead_job()
        jobs("retry", job.pk)
        job.refresh_from_db()
        assert (job.status, job.run) == ("READY", 1)

    def test_the_succeeded_are_not_retried_in_bulk(self) -> None:
        with pytest.raises(CommandError, match="invalid choice: 'SUCCEEDED'"):
            jobs("retry", "--status", "SUCCEEDED", "--yes")

    @pytest.mark.parametrize("arguments", [[], ["--task", "x"], [1, "--status", "DEAD"]])
    def test_jobs_are_named_by_id_or_chosen_by_status(self, arguments: list[Any]) -> None:
        assert "by id" in failing("retry", *arguments)[1]


class TestCancel:
    def test_what_waits_is_cancelled_and_what_runs_is_asked_to_end(self) -> None:
        ready, running = tasks.nothing.enqueue(), a_running_job()
        text = jobs("cancel", ready.pk, running.pk, "--reason", "enough")
        assert text == f"Cancelled: {ready.pk}\nAsked to end, at the next safe point: {running.pk}\n"
        assert Job.objects.values_list("status", "reason").get(pk=ready.pk) == ("CANCELLED", "enough")
        assert status_of(running) == "RUNNING"
        assert CancelRequest.objects.get(job_id=running.pk).reason == "enough"

    def test_asking_again_is_no_failure(self) -> None:
        ready, running = tasks.nothing.enqueue(), a_running_job()
        jobs("cancel", ready.pk, running.pk)
        assert jobs("cancel", ready.pk, running.pk) == (
            f"Had been asked to end before: {running.pk}\nHad been cancelled before: {ready.pk}\n"
        )

    def test_what_has_ended_otherwise_or_does_not_exist_is_a_failure(self) -> None:
        succeeded, ready = a_finished_job(), tasks.nothing.enqueue()
        text, failure = failing("cancel", succeeded.pk, ready.pk, 2**62)
        assert text == f"Cancelled: {ready.pk}\n"
        assert (
            failure == f"Not cancelled: 2 of 3. {succeeded.pk} has ended already: SUCCEEDED. There is no job: {2**62}."
        )

    def test_jobs_are_cancelled_by_status_and_task_in_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(changing, "BATCH", 2)
        wanted = [tasks.nothing.enqueue() for _ in range(5)]
        other = tasks.effect.enqueue("x")
        assert jobs_json("cancel", "--status", "READY", "--task", "tests.tasks.nothing", "--yes") == {
            "cancelled": 5,
            "asked": 0,
            "moved_on": 0,
        }
        assert {status_of(job) for job in wanted} == {"CANCELLED"}
        assert status_of(other) == "READY"

    def test_jobs_that_are_enqueued_meanwhile_are_not_chased(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(changing, "BATCH", 1)
        tasks.nothing.enqueue_many([{}] * 3)
        cancel = lifecycle.cancel

        def cancel_and_enqueue(using: str, ids: list[int], *, reason: str) -> lifecycle.Cancelled:
            tasks.nothing.enqueue()
            return cancel(using, ids, reason=reason)

        monkeypatch.setattr(lifecycle, "cancel", cancel_and_enqueue)
        assert jobs_json("cancel", "--status", "READY", "--yes")["cancelled"] == 3


class TestPause:
    def test_a_paused_queue_is_not_served_until_it_is_resumed(self) -> None:
        tasks.nothing.enqueue()
        assert jobs("pause", "default") == "Paused until resumed: default\n"
        assert run_jobs() == []
        assert jobs("resume", "default") == "Resumed: default\n"
        assert len(run_jobs()) == 1

    def test_a_pause_may_end_after_a_span(self) -> None:
        earliest = timezone.now() + timedelta(minutes=90)
        assert jobs("pause", "default", "--for", "1h30m").startswith("Paused until 2")
        resume_at = Queue.objects.get().resume_at
        assert resume_at is not None and earliest <= resume_at < earliest + timedelta(minutes=1)

    def test_a_pause_may_end_at_a_moment(self) -> None:
        jobs("pause", "default", "--until", "2190-01-31T08:00+01:00")
        assert Queue.objects.get().resume_at == datetime.fromisoformat("2190-01-31T07:00Z")

    def test_a_moment_that_has_passed_pauses_nothing(self) -> None:
        assert "has passed: nothing was paused" in failing("pause", "default", "--until", "2020-01-31T08:00")[1]
        assert not Queue.objects.exists()

    def test_pausing_again_and_resuming_twice_are_no_failures(self) -> None:
        jobs("pause", "default", "--for", "2h")
        assert jobs("pause", "default") == "Paused before, and now until resumed: default\n"
        jobs("resume", "default")
        assert jobs("resume", "default") == "Was not paused: default\n"

    def test_a_queue_that_nothing_names_is_paused_with_a_doubt(self) -> None:
        text = jobs("pause", "defualt")
        assert "Paused until resumed: defualt\n" in text
        assert "No job, task or worker names the queue defualt: did you mean default?" in text
        assert jobs_json("pause", "defualt", "default")["unknown"] == []

    @pytest.mark.parametrize(
        "arguments", [["a b"], ["a", "--for", "2 years"], ["a", "--for", "1h", "--until", "2190-01-01"]]
    )
    def test_what_makes_no_sense_is_refused(self, arguments: list[str]) -> None:
        with pytest.raises(CommandError):
            jobs("pause", *arguments)
        assert not Queue.objects.exists()


class TestPrune:
    def test_it_deletes_what_is_older_than_its_retention(self, settings: Any) -> None:
        settings.RELIABLE_JOBS = {**settings.RELIABLE_JOBS, "RETENTION": {"SUCCEEDED": timedelta(days=1)}}
        old, new, dead = a_finished_job(), a_finished_job(), a_dead_job()
        Job.objects.filter(pk__in=[old.pk, dead.pk]).update(finished_at=Now() - timedelta(days=2))
        text = jobs("prune")
        assert text == "Deleted 1 ended jobs that were older than RETENTION.\nKept whatever their age: DEAD.\n"
        assert set(Job.objects.values_list("pk", flat=True)) == {new.pk, dead.pk}
        assert jobs_json("prune") == {"deleted": 0}
