"""One `runworker` for two databases: real children, one database each, really killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest
from django.db import OperationalError, connection, connections

from django_reliable_jobs.models import Attempt, Job, Leader, Worker
from django_reliable_jobs.processes.supervisor import Supervisor
from tests import tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.ports import free_port
from tests.processes.test_probe import ask, status_at
from tests.proxy import Proxy
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]
BOTH = ("default", "second")


@pytest.fixture
def second(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Another database with the tables of the tests, as the alias `second`; a copy of the test's, which is empty."""
    template = connection.settings_dict["NAME"]
    name = f"{template}_second"
    connection.close()

    def is_made() -> bool:
        try:
            execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        except OperationalError as error:  # a process of the last test is about to leave
            assert "is being accessed by other users" in str(error)
            return False
        return True

    execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    wait_for(is_made, what="the template to be left alone")
    monkeypatch.setitem(connections.settings, "second", {**connection.settings_dict, "NAME": name})
    connections["second"].connect()  # once and for all: Django lets a test open none that it was not told of
    yield "second"
    connections["second"].close()
    del connections["second"]
    execute(f"DROP DATABASE {name} WITH (FORCE)")


def execute(statement: str) -> None:
    with connection._nodb_cursor() as cursor:
        cursor.execute(statement)


def start(start_worker: StartWorker, *arguments: str, way: Proxy | None = None) -> WorkerProcess:
    """Start a worker of both; `way` is the one to the second."""
    of_way = way.environment if way is not None else {}
    different = {"NAME": connections["second"].settings_dict["NAME"]}
    different |= {key: value for key in ("HOST", "PORT") if (value := of_way.pop(f"TESTS_DATABASE_{key}", None))}
    databases = [word for alias in BOTH for word in ("--database", alias)]
    environment = {**of_way, "TESTS_SECOND_DATABASE": json.dumps(different)}
    return start_worker(*databases, *arguments, ready=False, environment=environment)


def start_and_wait(start_worker: StartWorker, *arguments: str, way: Proxy | None = None) -> WorkerProcess:
    supervisor = start(start_worker, *arguments, way=way)
    wait_for(lambda: all(len(pids(each)) == 1 for each in BOTH) or supervisor.has_ended, what="a child of each")
    assert not supervisor.has_ended, supervisor.output
    return supervisor


def pids(using: str) -> set[int]:
    return set(Worker.objects.using(using).filter(lost_at=None).values_list("pid", flat=True))


def begun(name: str) -> int:
    """Return the process in which the slow job of this name runs, once it does."""
    return wait_for(lambda: Effect.objects.filter(name=f"{name} begins").first(), what=f"{name} to begin").pid


def is_lost(using: str) -> bool:
    return Attempt.objects.using(using).filter(outcome="lost").exists()


def test_one_command_runs_the_jobs_of_each_database_in_processes_of_its_own(
    second: str, start_worker: StartWorker
) -> None:
    for alias in BOTH:
        tasks.effect.using(database=alias).enqueue(alias)
    supervisor = start(start_worker, "--processes", "2", "--burst")
    assert supervisor.wait() == 0, supervisor.output
    assert "starts 4 worker processes" in supervisor.output
    for alias in BOTH:
        assert Job.objects.using(alias).get().status == "SUCCEEDED"
        assert not Worker.objects.using(alias).exists()
    effects = dict(Effect.objects.values_list("name", "pid"))
    assert effects.keys() == set(BOTH)
    assert effects["default"] != effects["second"]


def test_the_jobs_of_a_killed_child_are_taken_back_at_once_in_its_own_database(
    second: str, start_worker: StartWorker
) -> None:
    supervisor = start_and_wait(start_worker, "--threads", "1")
    of_first, of_second = (tasks.slow.using(database=alias).enqueue(60, alias) for alias in BOTH)
    survivor, victim = begun("default"), begun("second")
    assert (pids("default"), pids("second")) == ({survivor}, {victim})
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: is_lost("second"), timeout=25, what="the rescue")  # a lease is 30 s
    assert "SIGKILL" in Attempt.objects.using("second").get(job_id=of_second.pk).error_message
    successors = wait_for(lambda: pids("second") - {victim}, what="another child in its place")
    assert pids("default") == {survivor}, "the other database's child lives on"
    assert psutil.pid_exists(survivor)
    of_first.refresh_from_db()
    assert (of_first.status, is_lost("default")) == ("RUNNING", False)
    assert "1 jobs of a dead worker process (database 'second') were taken back" in supervisor.output
    assert f"worker process {successors.pop()} (database 'second') starts" in supervisor.output


def test_a_database_that_does_not_answer_holds_up_no_rescue_in_another(second: str, start_worker: StartWorker) -> None:
    way = Proxy("second")
    try:
        supervisor = start_and_wait(start_worker, "--threads", "1", way=way)
        for alias in BOTH:
            tasks.slow.using(database=alias).enqueue(60, alias)
        victims = {alias: begun(alias) for alias in BOTH}
        way.passes.clear()
        os.kill(victims["second"], signal.SIGKILL)
        wait_for(lambda: not psutil.pid_exists(victims["second"]), what="its burial")
        os.kill(victims["default"], signal.SIGKILL)
        wait_for(lambda: is_lost("default"), timeout=25, what="the rescue")
        assert not is_lost("second")
        way.passes.set()
        wait_for(lambda: is_lost("second"), timeout=25, what="the other rescue")
        assert not supervisor.has_ended
    finally:
        way.close()


def test_a_stop_ends_the_children_of_all_databases(second: str, start_worker: StartWorker) -> None:
    supervisor = start_and_wait(start_worker)
    jobs = [tasks.slow.using(database=alias).enqueue(1, alias) for alias in BOTH]
    for alias in BOTH:
        begun(alias)
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait(timeout=30) == 0, supervisor.output
    for alias, job in zip(BOTH, jobs, strict=True):
        job.refresh_from_db(using=alias)
        assert job.status == "SUCCEEDED"
        assert not Worker.objects.using(alias).exists()


def test_each_database_gets_a_scheduler_and_one_port_tells_of_all(second: str, start_worker: StartWorker) -> None:
    port = free_port()
    start(start_worker, "--with-scheduler", "--health-port", str(port))
    wait_for(lambda: all(Leader.objects.using(alias).exists() for alias in BOTH), what="both leaders")
    wait_for(lambda: status_at(port) == 200, what="the answer")
    told = ask(port, "/metrics")[1]
    for alias in BOTH:
        assert f'reliable_jobs_has_leader{{database="{alias}"}} 1.0' in told


def test_a_complaint_names_the_database_of_its_child() -> None:
    good, bad = ([sys.executable, "-c", f"import time; time.sleep({time})"] for time in ("60", "'x'"))
    supervisor = Supervisor(commands={"default": good, "second": bad}, processes=2, shutdown_timeout=1)
    running = threading.Thread(target=supervisor.run)
    running.start()
    try:
        found = wait_for(lambda: len(told := supervisor.complaints()) == 2 and told, what="the complaints")
    finally:
        supervisor.request_stop()
        running.join()
    assert found == [f"worker process {number} (database 'second') dies as soon as it starts" for number in (2, 3)]
