"""What Prometheus gets to read."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test import RequestFactory
from prometheus_client.parser import text_string_to_metric_families

from django_reliable_jobs import metrics
from django_reliable_jobs.engine import alerts, counters, leader
from django_reliable_jobs.engine.counters import Counted
from django_reliable_jobs.engine.heartbeat import new_identity
from django_reliable_jobs.engine.leader import Candidate
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.processes.tally import Tally
from django_reliable_jobs.testing import tick
from tests import tasks
from tests.actors import wait_for
from tests.processes.test_probe import ask, free_port
from tests.schedules import a_schedule, on
from tests.states import a_dead_job, a_running_job, a_worker
from tests.workers import WorkerProcess

ORDER = ("database", "queue", "task", "outcome", "kind", "severity", "limit", "le")
Samples = dict[tuple[str, ...], float]


def samples(content: str) -> Samples:
    """The value of each sample by its name and the values of its labels."""
    return {
        (
            sample.name.removeprefix("reliable_jobs_"),
            *(sample.labels[each] for each in ORDER if each in sample.labels),
        ): (sample.value)
        for family in text_string_to_metric_families(content)
        for sample in family.samples
    }


def of_fleet() -> Samples:
    return samples(metrics.FleetMetrics("default").page()[1].decode())


@pytest.mark.django_db
class TestFleet:
    def test_queues_are_told(self) -> None:
        a_running_job()
        a_worker()
        tasks.nothing.using(queue_name="mail").enqueue()
        tasks.nothing.using(queue_name="mail", run_after=timedelta(hours=1)).enqueue()
        a_dead_job()
        found = of_fleet()
        assert (found["ready", "mail"], found["scheduled", "mail"], found["running", "mail"]) == (1, 1, 0)
        assert found["running", "running"] == 1
        assert found["workers", "mail"] == 2
        assert found["oldest_seconds", "mail"] >= 0
        assert found["dead_letters",] == 1

    def test_the_last_full_minute_is_told(self) -> None:
        counters.add("default", {Counted("mail", "shop.send", "succeeded"): (7, 0.5)})
        counters.add("default", {Counted("mail", "shop.other", "succeeded"): (5, 0.5)})
        assert ("attempts_last_minute", "mail", "succeeded") not in of_fleet(), "it is not over"
        with connection.cursor() as cursor:
            cursor.execute("UPDATE django_reliable_jobs_minutecount SET minute = minute - interval '1 minute'")
        assert of_fleet()["attempts_last_minute", "mail", "succeeded"] == 12

    def test_the_leader_is_told(self) -> None:
        assert of_fleet()["has_leader",] == 0
        leader.stand("default", Candidate(name="scheduler", identity=new_identity("host", 1)))
        found = of_fleet()
        assert (found["has_leader",], found["leader_term",]) == (1, 1)

    def test_the_lateness_of_slots_is_told(self) -> None:
        Schedule.objects.all().delete()
        a_schedule()
        tick(at=on(2, 1, 0, 7))
        assert of_fleet()["slot_late_seconds",] == 7

    def test_open_alerts_are_told(self) -> None:
        alerts.note("default", "worker_lost", "web-1", "lost")
        assert of_fleet()["open_alerts", "worker_lost", "warning"] == 1

    def test_queues_without_end_are_not(self) -> None:
        for number in range(metrics.MOST_QUEUES + 20):
            tasks.nothing.using(queue_name=f"q{number:03}").enqueue()
        assert sum(name == "ready" for name, *_ in of_fleet()) == metrics.MOST_QUEUES

    def test_the_view_wants_the_token(self, settings: Any) -> None:
        settings.RELIABLE_JOBS = {"HEALTH_TOKEN": "correct-horse"}
        assert metrics.metrics(RequestFactory().get("/metrics")).status_code == 403
        answer = metrics.metrics(RequestFactory().get("/metrics?token=correct-horse"))
        assert answer.status_code == 200
        assert samples(answer.content.decode())["has_leader",] == 0


@pytest.mark.django_db(transaction=True)
class TestProcesses:
    def test_a_worker_tells_what_it_did(self, start_worker: Callable[..., WorkerProcess]) -> None:
        port = free_port()
        tasks.nothing.enqueue_many([{} for _ in range(20)])
        tasks.once_fails.enqueue()
        worker = start_worker("--health-port", str(port))

        def read() -> Samples:
            return samples(ask(port, "/metrics")[1])

        done = wait_for(
            lambda: (
                (found := read()).get(("attempts_total", "default", "tests.tasks.nothing", "succeeded")) == 20
                and ("attempts_total", "default", "tests.tasks.once_fails", "dead") in found
                and found
            ),
            what="the counts",
        )
        assert done["attempts_total", "default", "tests.tasks.once_fails", "dead"] == 1
        assert done["run_seconds_count", "default", "tests.tasks.nothing"] == 20
        assert done["wait_seconds_bucket", "default", "+Inf"] == 21
        assert done["lost_leases_total",] == done["rescued_total",] == 0
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0

    def test_a_scheduler_tells_of_the_fleet(self, start_worker: Callable[..., WorkerProcess]) -> None:
        port = free_port()
        Schedule.objects.all().delete()
        start_worker("--health-port", str(port), command="runscheduler", ready=False)

        def leads() -> bool:
            try:
                return samples(ask(port, "/metrics")[1])["has_leader",] == 1
            except OSError:
                return False

        wait_for(leads, what="the leader")


@pytest.mark.django_db(transaction=True)
class TestSeveralDatabases:
    def test_each_is_told_under_its_alias(self, jobs_database: str) -> None:
        a_dead_job()
        found = of_several("default", jobs_database)
        for alias in ("default", jobs_database):  # the same rows
            assert (found["dead_letters", alias], found["database_up", alias]) == (1, 1)

    def test_one_that_does_not_answer_takes_no_other_with_it(
        self, jobs_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lost = connections[jobs_database]
        lost.close()
        # Django lets a test open no connection that it was not told of.
        monkeypatch.setattr(lost, "ensure_connection", lost.wrap_database_errors(lost.connect))
        for key, value in (("HOST", "127.0.0.1"), ("PORT", "1")):
            monkeypatch.setitem(lost.settings_dict, key, value)
        found = of_several(jobs_database, "default")
        assert (found["database_up", "default"], found["database_up", jobs_database]) == (1, 0)
        assert found["dead_letters", "default"] == 0
        assert ("dead_letters", jobs_database) not in found

    def test_one_alone_has_no_label(self) -> None:
        assert ("dead_letters",) in of_several("default")


def of_several(*databases: str) -> Samples:
    return samples(metrics.fleet_pages(databases)["/metrics"]()[1].decode())


class TestLabels:
    def test_a_task_that_is_not_declared_is_other(self) -> None:
        assert metrics.task_label("tests.tasks.nothing") == "tests.tasks.nothing"
        assert metrics.task_label("made.up.by.a.row") == "other"

    def test_queues_beyond_the_first_hundred_are_other(self) -> None:
        worker = metrics.WorkerMetrics(Tally("default"))
        names = {worker._queues.name(f"q{number}") for number in range(200)}
        assert len(names) == metrics.MOST_QUEUES + 1
        assert worker._queues.name("q7") == "q7"
        assert worker._queues.name("q150") == "other"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "django_reliable_jobs.metrics")
    with pytest.raises(ImportError, match="install the extra `metrics`"):
        importlib.import_module("django_reliable_jobs.metrics")
