"""What a person sees of `runworker` and `runscheduler` in a terminal, before the work begins and at its end."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from django_reliable_jobs.management.commands.runworker import command_of_child
from django_reliable_jobs.management.console import show_log
from django_reliable_jobs.models import Job, Worker
from django_reliable_jobs.processes.memory import parse_bytes
from tests import tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@contextmanager
def lonely_logger() -> Iterator[logging.Logger]:
    """The package's logger as in a project whose LOGGING says nothing of it."""
    logger = logging.getLogger("django_reliable_jobs")
    before = logger.handlers[:], logger.level, logger.propagate
    logger.handlers[:], logger.propagate = [], False
    yield logger
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.mark.parametrize("command", ["runworker", "runscheduler"])
def test_a_missing_table_is_told_with_the_way_out(command: str, transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_reliable_jobs_worker RENAME TO hidden")
    try:
        with pytest.raises(CommandError, match=r"manage\.py migrate"):
            call_command(command)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE hidden RENAME TO django_reliable_jobs_worker")


def test_an_unknown_database_is_told_with_those_that_there_are() -> None:
    with pytest.raises(CommandError, match=r"there is no database 'nowhere' in DATABASES; the aliases are default"):
        call_command("runworker", "--database", "nowhere")


def test_a_supervisor_looks_at_every_database_before_it_starts_anything(transactional_db: None) -> None:
    with pytest.raises(CommandError, match="there is no database 'nowhere' in DATABASES"):
        call_command("runworker", "--database", "default", "--database", "nowhere")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (
            ["--queue", "a,b"],
            "argument --queue: queue_name must be text of 1 to 64 printable characters",
        ),
        (["--queue", "*"], "argument --queue: queue_name must be text"),
        (["--queue", ""], "is not NAME or NAME=WEIGHT with a weight from 1 to 1000"),
        (["--queue", "a=0"], "'a=0' is not NAME or NAME=WEIGHT"),
        (["--queue", "a=b=3"], "'a=b=3' is not NAME or NAME=WEIGHT"),
        (["--except", "a,b"], "argument --except: queue_name must be text"),
        (["--queue", "a", "--queue", "b", "--queue", "a"], "--queue names a twice"),
        (["--queue", "a=3", "--queue", "a=4"], "--queue names a twice"),
        (["--queue", "a=3", "--queue", "b"], "give every --queue a weight, or none"),
        (["--queue", "a", "--except", "b"], "--queue and --except can't be combined"),
        (["--threads", "0"], "'0' is not a whole number of at least 1"),
        *[
            (["--shutdown-timeout", text], "is not a number of seconds, 0 or more")
            for text in ("-1", "nan", "inf", "x")
        ],
        (["--reload", "--processes", "2"], "--reload runs one process"),
        (["--reload", "--database", "default", "--database", "other"], "--reload runs one process: name one"),
        (["--database", "default", "--database", "other", "--database", "default"], "--database names default twice"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], wanted: str) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("runworker", "--burst", *arguments)
    assert wanted in str(caught.value)


def test_a_database_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> None:
    entry = {**connections.settings["default"], "ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    monkeypatch.setitem(connections.settings, "lite", {**entry, "OPTIONS": {}})
    try:
        with pytest.raises(CommandError, match="needs PostgreSQL, but the database 'lite' is sqlite"):
            call_command("runworker", "--database", "default", "--database", "lite")
    finally:
        del connections["lite"]


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (["runscheduler"], "start a scheduler for each, or runworker --with-scheduler, which takes several"),
        (["jobs", "status"], "run the command once for each"),
        (["import_celery_beat"], "run the command once for each"),
    ],
)
def test_a_second_database_does_not_take_the_place_of_the_first_in_silence(words: list[str], way_out: str) -> None:
    for again in ("other", "default"):
        with pytest.raises(CommandError) as caught:
            call_command(*words, "--database", "default", "--database", again)
        assert str(caught.value).endswith(f"argument --database: names default already: {way_out}")


def test_a_child_gets_the_words_of_its_supervisor_and_its_own_database() -> None:
    words = ["python", "manage.py", "runworker", "--queue", "database", "--processes", "2", "--threads=3"]
    assert command_of_child(words, None) == [*words[:5], "--threads=3"]
    words += ["--database", "a", "--database=b", "--health-port=80", "--proc=4", "--data", "c", "--burst"]
    assert command_of_child(words, "a") == [*words[:5], "--threads=3", "--burst", "--database", "a"]


@pytest.mark.parametrize(("verbosity", "level"), [(0, logging.WARNING), (1, logging.INFO), (2, logging.DEBUG)])
def test_a_project_without_logging_sees_the_log(verbosity: int, level: int) -> None:
    with lonely_logger() as logger:
        show_log(verbosity)
        assert [type(handler) for handler in logger.handlers] == [logging.StreamHandler]
        assert logger.level == level


def test_the_logging_of_a_project_stays_as_it_is() -> None:
    own = logging.NullHandler()
    with lonely_logger() as logger:
        logger.addHandler(own)
        show_log(2)
        assert logger.handlers == [own]


def test_a_worker_that_never_reached_the_database_stops_at_once(start_worker: StartWorker) -> None:
    worker = start_worker(environment={"TESTS_DATABASE_HOST": "127.0.0.1", "TESTS_DATABASE_PORT": "1"}, ready=False)
    wait_for(lambda: "did not answer" in worker.output, what="the first try")
    worker.send(signal.SIGINT)
    assert worker.wait() == 1
    assert "before it reached the database" in worker.output


def test_a_stop_says_what_it_waits_for(start_worker: StartWorker) -> None:
    tasks.slow.enqueue(1)
    worker = start_worker()
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0
    assert "waits for its running jobs (1), at most 25 s" in worker.output
    assert "has stopped" in worker.output


def test_ctrl_c_reaches_children_once(start_worker: StartWorker) -> None:
    job = tasks.slow.enqueue(2)
    supervisor = start_worker("--processes", "2", ready=False)
    wait_for(lambda: Effect.objects.exists(), what="the job to begin")
    supervisor.send_to_group(signal.SIGINT)  # as a terminal does
    assert supervisor.wait(timeout=30) == 0, supervisor.output
    job.refresh_from_db()
    assert job.status == Job.Status.SUCCEEDED
    assert not Worker.objects.exists()


@pytest.mark.parametrize("text", ["10", "0M", "M", "10X", "-5M", ""])
def test_a_size_needs_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size like 512M or 2G"):
        parse_bytes(text)


def test_a_job_that_is_not_tried_again_says_why(start_worker: StartWorker) -> None:
    job = tasks.retries_only_lost_connections.enqueue()
    assert start_worker("--burst").wait() == 0
    job.refresh_from_db()
    assert (job.status, job.attempt) == ("DEAD", 1)
    assert job.reason == "ValueError: no; not tried again: ValueError is not in retry_on"
    trace = job.attempts.get().traceback
    assert "retries_only_lost_connections" in trace.splitlines()[1]  # not the frames that called it
