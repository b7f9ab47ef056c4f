"""The health view, and `jobs ping`."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import path

from django_reliable_jobs.engine import leader
from django_reliable_jobs.engine.heartbeat import new_identity
from django_reliable_jobs.engine.leader import Candidate
from django_reliable_jobs.health import health
from django_reliable_jobs.models import Leader, Schedule
from django_reliable_jobs.processes.probe import Probe
from tests.edges.jobs_command import failing, jobs, jobs_json
from tests.schedules import a_schedule
from tests.states import a_dead_job

TOKEN = "correct-horse-battery"
urlpatterns = [path("health/", health)]


@pytest.fixture(autouse=True)
def _token(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"HEALTH_TOKEN": TOKEN, "TASK_MODULES": ["tests.tasks"]}


def asked(path: str = f"/health/?token={TOKEN}", **headers: str) -> HttpResponse:
    return health(RequestFactory().get(path, headers=headers))


def answer(path: str = f"/health/?token={TOKEN}", **headers: str) -> tuple[int, Any]:
    response = asked(path, **headers)
    return response.status_code, json.loads(response.content)


@pytest.mark.django_db
class TestHealth:
    @pytest.fixture(autouse=True)
    def no_declared_schedules(self, db: None) -> None:
        Schedule.objects.all().delete()

    def test_all_is_well(self) -> None:
        assert answer() == (200, {"status": "ok", "problems": []})
        assert answer("/health/", Authorization=f"Bearer {TOKEN}")[0] == 200
        assert "no-store" in asked()["Cache-Control"]

    @pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}])
    def test_without_the_token_it_is_closed(self, headers: dict[str, str]) -> None:
        assert answer("/health/", **headers) == (403, {"status": "forbidden", "problems": []})
        assert answer("/health/?token=wrong\u00e9")[0] == 403

    def test_without_a_token_in_the_settings_it_is_closed_to_all(self, settings: Any) -> None:
        settings.RELIABLE_JOBS = {}
        assert answer("/health/?token=")[0] == 403
        assert answer("/health/?token=None")[0] == 403

    def test_a_warning_is_told_and_is_no_failure(self) -> None:
        a_dead_job()
        status, told = answer()
        assert (status, told["status"]) == (200, "warning")
        assert [(each["kind"], each["severity"]) for each in told["problems"]] == [("dead_letters", "warning")]

    def test_all_schedulers_down_fail_it_within_the_time_and_up_again_it_recovers(self) -> None:
        a_schedule()
        Schedule.objects.update(next_run_at=Now() + timedelta(days=1))
        candidate = Candidate(name="scheduler", identity=new_identity("host", 1))
        leader.stand("default", candidate)
        assert answer()[0] == 200
        Leader.objects.update(expires_at=Now() - timedelta(seconds=59))
        assert answer()[0] == 200
        Leader.objects.update(expires_at=Now() - timedelta(seconds=61))
        status, told = answer()
        assert (status, told["status"]) == (503, "critical")
        assert [each["kind"] for each in told["problems"]] == ["no_scheduler"]
        leader.stand("default", candidate)
        assert answer()[0] == 200

    def test_a_failure_is_no_error_of_the_site(
        self, client: Client, settings: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings.ROOT_URLCONF = __name__
        a_schedule()
        Leader.objects.update(expires_at=Now() - timedelta(hours=1))
        assert client.get(f"/health/?token={TOKEN}").status_code == 503
        assert "django.request" not in {record.name for record in caplog.records}, (
            "ADMINS would get a mail at each look"
        )

    def test_it_can_not_be_posted_to(self) -> None:
        assert health(RequestFactory().post(f"/health/?token={TOKEN}")).status_code == 405


@pytest.mark.django_db(transaction=True)
def test_a_database_that_does_not_answer_is_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    try:
        status, told = answer()
    finally:
        connection.close()
    assert (status, told["problems"][0]["kind"]) == (503, "database")


class TestPing:
    def test_a_process_that_turns_is_alive(self) -> None:
        complaints: list[str] = []
        probe = Probe(0, lambda: complaints)
        probe.start()
        try:
            assert jobs("ping", "--port", probe.port) == "alive\n"
            assert jobs_json("ping", "--port", probe.port) == {"alive": True, "complaints": []}
            complaints.append("the heartbeat has not turned for 31 s")
            assert failing("ping", "--port", probe.port)[1] == "the heartbeat has not turned for 31 s"
        finally:
            probe.stop()

    def test_nobody_at_the_port_is_a_failure(self) -> None:
        assert failing("ping", "--port", 1)[1].startswith("nobody answers at 127.0.0.1:1: ConnectionRefusedError")
