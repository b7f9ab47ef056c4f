from __future__ import annotations

import io
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from django_reliable_jobs.engine import exchange, revival
from django_reliable_jobs.engine.claim import Arm
from django_reliable_jobs.management.commands.jobs import Command
from django_reliable_jobs.models import Job
from tests import tasks
from tests.edges.jobs_command import Terminal, failing, jobs, jobs_json
from tests.recorded import run_jobs
from tests.states import a_dead_job, a_finished_job, a_running_job, a_worker

pytestmark = pytest.mark.django_db


class TestStatus:
    def test_it_shows_queues_workers_and_dead_letters(self) -> None:
        a_running_job()
        tasks.nothing.enqueue()
        tasks.ends_by.using(queue_name="mail").enqueue("fail")
        a_dead_job()
        lines = jobs("status").splitlines()
        assert [line.split() for line in lines if line.startswith("running")] == [
            ["running", "0", "1", "0", "-", "1", "served"]
        ]
        assert [line.split()[:4] for line in lines if line.startswith("host:7")] == [["host:7", "all", "2", "1"]]
        assert "Dead letters: 1. List them: manage.py jobs list --status DEAD" in lines
        assert "       1  tests.tasks.once" in lines

    def test_it_says_that_a_queue_is_paused_and_that_no_worker_serves_one(self) -> None:
        tasks.nothing.using(queue_name="mail").enqueue()
        jobs("pause", "default")
        text = jobs("status")
        assert [line.split()[-1] for line in text.splitlines() if line.startswith("default")] == ["paused"]
        assert next(line for line in text.splitlines() if line.startswith("mail")).endswith("no worker serves it")
        assert "No worker is running. Start one: manage.py runworker" in text

    def test_it_names_tasks_that_no_worker_knows(self) -> None:
        a_worker(tasks=["tests.tasks.nothing"])
        tasks.nothing.enqueue()
        assert "no worker of their queue knows" not in jobs("status")
        Job.objects.create(task="gone.\x1b[2J")
        for number in range(5):
            Job.objects.create(task=f"lost.{number}")
        text = jobs("status")
        assert "Tasks that no worker of their queue knows; is the release that declares them deployed?" in text
        assert "       1  gone.\\x1b[2J in default" in text
        assert "       1  lost.3 in default" in text and "lost.4" not in text and "and 1 more" in text
        assert {"task": "lost.4", "queue_name": "default", "jobs": 1} in jobs_json("status")["unknown_tasks"]

    def test_a_script_reads_it_as_json(self) -> None:
        a_running_job()
        a_dead_job()
        status = jobs_json("status")
        [running] = [each for each in status["queues"] if each["name"] == "running"]
        assert (running["running"], running["ready"], running["oldest_seconds"], running["workers"]) == (1, 0, None, 1)
        assert [(each["host"], each["pid"], each["state"]) for each in status["workers"]] == [("host", 7, "working")]
        assert status["dead"] == {"total": 1, "by_task": {"tests.tasks.once": 1}}


class TestList:
    def test_it_shows_the_newest_jobs_first(self) -> None:
        older, newer = tasks.nothing.enqueue(), tasks.effect.enqueue("x")
        lines = jobs("list").splitlines()
        assert lines[0].split() == ["ID", "STATUS", "TASK", "QUEUE", "PRIO", "ATTEMPT", "WHEN"]
        assert [line.split()[:3] for line in lines[1:]] == [
            [str(newer.pk), "READY", "tests.tasks.effect"],
            [str(older.pk), "READY", "tests.tasks.nothing"],
        ]

    def test_filters_combine(self) -> None:
        wanted = tasks.nothing.using(queue_name="mail").enqueue()
        tasks.nothing.enqueue()
        tasks.effect.using(queue_name="mail").enqueue("x")
        tasks.nothing.using(queue_name="mail", run_after=timedelta(hours=1)).enqueue()
        found = jobs_json("list", "--status", "ready", "--queue", "mail", "--task", "tests.tasks.nothing")
        assert [job["id"] for job in found["jobs"]] == [wanted.pk]

    def test_paging_visits_each_job_once(self) -> None:
        enqueued = [tasks.nothing.enqueue().pk for _ in range(5)]
        seen: list[int] = []
        page: dict[str, Any] = jobs_json("list", "--limit", 2)
        seen += [job["id"] for job in page["jobs"]]
        while page["next_before"] is not None:
            page = jobs_json("list", "--limit", 2, "--before", page["next_before"])
            seen += [job["id"] for job in page["jobs"]]
        assert seen == enqueued[::-1]

    def test_it_says_how_to_see_older_jobs_only_if_there_are_some(self) -> None:
        first, second = tasks.nothing.enqueue(), tasks.nothing.enqueue()
        assert f"--before {second.pk}" in jobs("list", "--limit", 1)
        assert "--before" not in jobs("list", "--limit", 2)
        assert "--before" not in jobs("list", "--limit", 1, "--before", first.pk + 1)

    def test_it_says_when_each_job_was_or_is_due(self) -> None:
        tasks.nothing.using(run_after=timedelta(hours=2, seconds=30)).enqueue()
        tasks.nothing.enqueue()
        Job.objects.filter(status="READY").update(run_after=Now() - timedelta(minutes=3))
        a_running_job()
        text = jobs("list")
        assert "due in 2 h" in text
        assert "waits for 3 min" in text
        assert "runs for " in text
        a_finished_job()
        assert " ago" in jobs("list", "--status", "SUCCEEDED")

    def test_a_filter_by_a_task_that_is_not_declared_says_so(self) -> None:
        for name in ("tests.tasks.nothin", "nothing", "nothin", "old.nothing"):
            assert "did you mean 'tests.tasks.nothing'?" in jobs("list", "--task", name)

    def test_a_terminal_of_100_columns_gets_no_longer_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "100")
        name = "a_project.with_deeply.nested_packages." * 3 + "and_a_task"
        Job.objects.create(task=name, queue_name="quite_a_long_queue")
        lines = jobs("list", stdout=Terminal()).splitlines()
        assert max(map(len, lines)) == 100
        assert "and_a_task  quite_a_long_queue" in lines[1]
        assert name in jobs("list"), "a pipe gets whole names"


class TestShow:
    def test_it_shows_arguments_times_and_every_failed_attempt_with_its_traceback(self) -> None:
        job = tasks.fails_until.using(priority=5).enqueue(attempt=3)
        run_jobs()
        text = jobs("show", job.pk)
        assert text.startswith(f"Job {job.pk}  SUCCEEDED  tests.tasks.fails_until\n")
        assert "  queue         default, priority 5\n" in text
        assert "  attempts      3 used, of 3\n" in text
        assert '  kwargs        {"attempt": 3}\n' in text
        assert "  result        3\n" in text
        assert "  finished      " in text and "it ran for " in text
        second, first = text.index("  2  failed after"), text.index("  1  failed after")
        assert second < text.index("ConnectionError: attempt 2") < first < text.index("ConnectionError: attempt 1")
        assert 'raise ConnectionError(f"attempt {job.attempt}")' in text
        assert "Why it does not run yet" not in text

    def test_it_shows_why_a_job_does_not_run_yet(self) -> None:
        job = tasks.nothing.enqueue()
        jobs("pause", "default")
        text = jobs("show", job.pk)
        assert "Why it does not run yet\n  - Its queue, default, is paused since " in text
        assert "  - No worker is running. Start one: `manage.py runworker`." in text

    def test_a_running_job_shows_its_worker_and_the_wish_to_cancel_it(self) -> None:
        job = a_running_job()
        jobs("cancel", job.pk, "--reason", "enough")
        text = jobs("show", job.pk)
        assert "  worker        host:7, working, last heartbeat " in text
        assert ": enough (ends at its next safe point)" in text
        assert jobs_json("show", job.pk)["cancel_requested"] == "enough"

    def test_a_running_job_whose_worker_is_not_on_the_list_says_so(self) -> None:
        job = tasks.nothing.enqueue()
        exchange.exchange("default", 1, [], [Arm("default", 0, 1)], limit=1, free=1)
        assert "  worker        not on the list of workers\n" in jobs("show", job.pk)

    def test_the_same_traceback_is_shown_once(self) -> None:
        job = tasks.fails.enqueue("broken")
        run_jobs()
        Job.objects.update(status="READY")
        run_jobs()
        text = jobs("show", job.pk)
        assert text.count("raise ValueError(message)") == 1
        assert "(the traceback is that of the attempt above)" in text

    def test_the_attempts_before_a_retry_stand_apart(self) -> None:
        job = tasks.fails_until.enqueue(99)
        run_jobs()
        assert "retried" not in jobs("show", job.pk)
        revival.revive("default", [job.pk])
        run_jobs()
        text = jobs("show", job.pk)
        [before, after] = text.split("\n\nBefore the job was retried; since then, attempts are counted anew\n\n")
        assert ("  1  failed" in before, "  1  failed" in after) == (True, True)
        revival.revive("default", [job.pk], from_start=True)
        assert "\n\nRun 1, before the job was retried from the start\n\n  3  failed" in jobs("show", job.pk)

    def test_it_says_that_older_attempts_are_left_out(self) -> None:
        job = tasks.fails_until.enqueue(3)
        run_jobs()
        assert "Older attempts are not shown: --attempts 2" in jobs("show", job.pk, "--attempts", 1)
        assert "Older attempts" not in jobs("show", job.pk, "--attempts", 2)

    def test_a_terminal_is_shown_escape_sequences_and_does_not_obey_them(self) -> None:
        job = Job.objects.create(
            task="\x1b[2Jtask", args=["\x1b]0;title\x07"], reason="\x1b[31mred\r", queue_name="\x9b1m"
        )
        assert not {"\x1b", "\x07", "\r", "\x9b"} & set(jobs("show", job.pk) + jobs("list") + jobs("status"))

    def test_a_script_reads_it_as_json(self) -> None:
        job = tasks.fails.enqueue("no dial tone")
        run_jobs()
        shown = jobs_json("show", job.pk)
        assert (shown["id"], shown["status"], shown["args"]) == (job.pk, "SCHEDULED", ["no dial tone"])
        assert [(each["outcome"], each["error_message"]) for each in shown["attempts"]] == [("failed", "no dial tone")]
        assert shown["attempts"][0]["traceback"].startswith("Traceback")
        assert any(each.startswith("It is scheduled for") for each in shown["waits_because"])
        assert datetime.fromisoformat(shown["run_after"]) > timezone.now()

    def test_a_job_that_does_not_exist_is_an_error(self) -> None:
        assert failing("show", 1)[1] == "There is no job 1; it may have been pruned after it ended."


class TestCommand:
    def test_without_a_verb_it_shows_its_help_and_fails(self) -> None:
        told = io.StringIO()
        with pytest.raises(CommandError, match=r"Name a verb: manage\.py jobs status") as caught:
            call_command("jobs", stderr=told)
        assert caught.value.returncode == 2
        assert "Show what is in the queues and who works on them." in told.getvalue()

    def test_an_unknown_database_is_named_with_those_that_exist(self) -> None:
        assert failing("status", "--database", "shard")[1] == (
            "There is no database 'shard' in DATABASES; the aliases are default."
        )

    def test_a_database_that_was_not_migrated_says_what_to_run(self) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_reliable_jobs_queue RENAME TO gone")
            failure = failing("status")[1]
            transaction.set_rollback(True)
        assert failure.startswith("The database 'default' lacks a table (")
        assert failure.endswith("Run: manage.py migrate")

    @pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "٣", str(2**63)])
    def test_what_is_no_id_is_refused(self, text: str) -> None:
        with pytest.raises(CommandError):
            jobs("show", "--", text)

    def test_djangos_own_options_may_stand_after_the_verb(self) -> None:
        parser = Command().create_parser("manage.py", "jobs")
        after = parser.parse_args(["status", "--settings=x.y", "--no-color", "-v", "2", "--traceback"])
        assert (after.settings, after.no_color, after.verbosity, after.traceback) == ("x.y", True, 2, True)
        before = parser.parse_args(["--settings=x.y", "--no-color", "status"])
        assert (before.settings, before.no_color) == ("x.y", True)
