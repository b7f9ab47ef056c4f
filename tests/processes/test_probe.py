"""Whether a process looks alive to who asks at its port."""

from __future__ import annotations

import http.client
import signal
import socket
import time
from collections.abc import Callable

import pytest

from django_reliable_jobs.models import Schedule
from django_reliable_jobs.processes.probe import Probe, complaints_of
from tests import tasks
from tests.actors import wait_for
from tests.edges.jobs_command import jobs
from tests.models import Effect
from tests.ports import free_port
from tests.workers import WorkerProcess

Start = Callable[..., WorkerProcess]


def ask(port: int, path: str = "/", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def status_at(port: int) -> int:
    """The status; 0: nobody answers."""
    try:
        return ask(port)[0]
    except OSError:
        return 0


class TestProbe:
    def test_it_answers_with_what_is_wrong(self) -> None:
        complaints: list[str] = []
        probe = Probe(0, lambda: complaints, pages={"/metrics": lambda: ("text/plain", b"up 1\n")})
        probe.start()
        try:
            assert ask(probe.port) == (200, "alive\n")
            assert ask(probe.port, method="HEAD") == (200, "")
            complaints.append("the worker has not turned for 70 s")
            assert ask(probe.port, "/any/path") == (503, "the worker has not turned for 70 s\n")
            assert ask(probe.port, "/metrics?x=1") == (200, "up 1\n"), "what it tells is told all the same"
        finally:
            probe.stop()

    def test_a_thread_that_turns_too_late_is_named(self) -> None:
        now = time.monotonic()
        assert complaints_of([("worker", 1, now - 5, 10), ("heartbeat", 2, now - 11, 10)]) == [
            "the heartbeat has not turned for 11 s"
        ]

    def test_a_thread_that_has_not_begun_may_wait(self) -> None:
        assert complaints_of([("heartbeat", None, time.monotonic() - 1000, 10)]) == []

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    def test_it_answers_at_addresses_of_both_kinds(self, host: str) -> None:
        if host == "::1" and not socket.has_dualstack_ipv6():
            pytest.skip("this machine has no IPv6")
        probe = Probe(0, list)
        probe.start()
        try:
            assert jobs("ping", "--port", probe.port, "--host", host) == "alive\n"
        finally:
            probe.stop()

    def test_an_asker_that_says_nothing_holds_up_no_other(self) -> None:
        probe = Probe(0, list)
        probe.start()
        try:
            with socket.create_connection(("127.0.0.1", probe.port)):
                assert ask(probe.port)[0] == 200
        finally:
            probe.stop()


@pytest.mark.django_db(transaction=True)
class TestProcesses:
    def test_a_worker_whose_loop_is_blocked_turns_unhealthy(self, start_worker: Start) -> None:
        port = free_port()
        worker = start_worker("--health-port", str(port), settings={"LEASE_SECONDS": 2})
        wait_for(lambda: status_at(port) == 200, what="the answer")
        tasks.blocks_the_worker.enqueue(30)
        wait_for(lambda: status_at(port) == 503, timeout=30, what="the complaint")
        assert "the worker has not turned for" in ask(port)[1]
        assert not worker.has_ended

    def test_a_worker_that_runs_a_long_job_stays_healthy(self, start_worker: Start) -> None:
        port = free_port()
        start_worker("--health-port", str(port), "--threads", "1", settings={"LEASE_SECONDS": 2})
        tasks.slow.enqueue(7)
        seen: list[int] = []

        def has_ended() -> bool:
            seen.append(status_at(port))
            return Effect.objects.filter(name="slow ends").exists()

        wait_for(has_ended, what="the end of the job")
        assert set(seen) == {200}, "longer than the worker's loop may take to turn"

    def test_a_scheduler_answers_and_a_supervisor_answers_for_its_children(self, start_worker: Start) -> None:
        Schedule.objects.all().delete()
        scheduler, supervisor = free_port(), free_port()
        start_worker("--health-port", str(scheduler), command="runscheduler", ready=False)
        process = start_worker("--health-port", str(supervisor), "--processes", "2", ready=False)
        wait_for(lambda: status_at(scheduler) == status_at(supervisor) == 200, what="both answers")
        process.send(signal.SIGTERM)
        assert process.wait() == 0, process.output

    def test_a_port_that_is_taken_is_told(self, start_worker: Start) -> None:
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen()
            port = taken.getsockname()[1]
            worker = start_worker("--health-port", str(port), ready=False)
            assert worker.wait() == 1
            assert f"--health-port {port} can't be used: Address already in use" in worker.output
