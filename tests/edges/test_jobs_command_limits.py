"""`manage.py jobs limits | limit`, and pauses of everything."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management.base import CommandError
from django.utils import timezone

from django_reliable_jobs.engine import claim, limits
from django_reliable_jobs.models import Job, Limit, Pace, Queue
from django_reliable_jobs.testing import run_jobs
from tests import limited_tasks, tasks
from tests.edges.jobs_command import failing, jobs, jobs_json
from tests.limited_claims import find_and_take
from tests.states import a_worker

pytestmark = pytest.mark.django_db

THREE = "tests.limited_tasks.three_at_a_time"


def limit_of(name: str) -> Limit:
    return Limit.objects.get(name=name)


class TestLimits:
    def test_it_lists_what_the_code_says_and_what_an_operator_says_and_what_is_used(self) -> None:
        limited_tasks.three_at_a_time.enqueue_many([{}] * 5)
        jobs("limit", THREE, "2")
        find_and_take(a_worker())
        line = next(line for line in jobs("limits").splitlines() if line.startswith(THREE))
        assert line.split() == [THREE, "concurrency", "3", "2", "2", "3", "-"]
        assert {
            "kind": "concurrency", "name": THREE, "value": "3", "override": "2", "running": 2, "waiting": 3,
            "is_declared": True, "seconds_to_start": None,
        } in jobs_json("limits")["limits"]  # fmt: skip

    def test_it_knows_the_limits_of_the_code_before_any_worker_has_started(self) -> None:
        assert not Limit.objects.exists()
        assert "60/m, burst 2" in jobs("limits")

    def test_it_lists_queues_with_a_limit(self) -> None:
        Queue.objects.create(name="mail", concurrency=4)
        assert "Queue mail: 4 jobs at once, 0 running\n" in jobs("limits")
        assert jobs_json("limits")["queues"] == [{"name": "mail", "concurrency": 4, "running": 0}]

    def test_status_shows_the_limits_that_jobs_wait_for(self) -> None:
        assert "LIMIT" not in jobs("status")
        limited_tasks.three_at_a_time.enqueue_many([{}] * 2)
        limits.declare("default")
        assert THREE in jobs("status")
        assert [each["waiting"] for each in jobs_json("status")["limits"]] == [2]

    def test_status_names_a_limit_that_no_worker_has_declared_and_nobody_overrides_it(self) -> None:
        Job.objects.create(task="tests.tasks.nothing", concurrency_key="newer:customer_id=1")
        [line] = (line for line in jobs("status").splitlines() if line.startswith("newer "))
        assert line.split() == ["newer", "concurrency", "undeclared:", "1", "-", "0", "1", "-"]
        assert failing("limit", "newer", "3")[1].startswith("No task declares a limit newer: ")

    def test_status_says_until_when_jobs_wait_for_a_rate(self) -> None:
        def next_start() -> str:
            [line] = (line for line in jobs("status").splitlines() if line.startswith("api "))
            return line.split("  ")[-1].strip()

        limited_tasks.call_api.enqueue_many([{"customer_id": 1}] * 2)
        limits.declare("default")
        assert next_start() == "now" and "NEXT START" in jobs("status")
        find_and_take(a_worker())  # a start of the burst
        limited_tasks.call_api.enqueue(1)
        Limit.objects.filter(name="api").update(allowed=1, burst=1)
        Pace.objects.update(paid_until=timezone.now() + timedelta(minutes=40))
        assert next_start() == "in 40 min"
        jobs("limit", "api", "0/h")
        assert next_start() == "none"


class TestLimit:
    def test_a_value_is_in_force_at_once_until_it_is_reset(self) -> None:
        limited_tasks.three_at_a_time.enqueue_many([{}] * 9)
        assert jobs("limit", THREE, "5") == f"{THREE}, concurrency: 5, in force now; the code says 3\n"
        assert len(find_and_take(a_worker())) == 5
        assert jobs("limit", THREE, "--reset") == f"{THREE}, concurrency: 3, as the code says\n"
        assert (limit_of(THREE).value, limit_of(THREE).override) == ("3", None)

    def test_a_rate_may_get_another_rate_and_burst(self) -> None:
        assert jobs("limit", "api", "600/m") == "api, rate: 600/m, in force now; the code says 1000/h, burst 3\n"
        jobs("limit", "api", "5/s", "--burst", "20")
        assert limit_of("api").override == "5/s, burst 20"

    @pytest.mark.parametrize(("name", "value"), [(THREE, "0"), ("api", "0/s")])
    def test_zero_lets_nothing_start(self, name: str, value: str) -> None:
        jobs("limit", name, value)
        limited_tasks.three_at_a_time.enqueue()
        limited_tasks.call_api.enqueue(1)
        assert len(find_and_take(a_worker())) == 1

    def test_a_limit_that_nobody_declares_is_refused_with_the_nearest(self) -> None:
        assert failing("limit", "crn", "3")[1] == "No task declares a limit crn: did you mean crm?"
        assert "the limits are api, " in failing("limit", "zzzzzz", "--reset")[1]

    def test_a_value_of_the_other_kind_is_refused(self) -> None:
        assert failing("limit", "crm", "10/s")[1] == "crm is a concurrency limit (2): give it a whole number."
        assert failing("limit", "api", "3")[1] == (
            "api is a rate limit (1000/h, burst 3): give it 10/s, 600/m or 1000/h."
        )

    @pytest.mark.parametrize(
        "arguments",
        [
            ["crm"],
            ["crm", "3", "--reset"],
            ["crm", "-1"],
            ["crm", "10 per second"],
            ["crm", "2000000"],
            ["crm", "3", "--burst", "2"],
            ["crm", "--reset", "--burst", "2"],
            ["api", "1/s", "--burst", "0"],
            ["a b", "3", "--queue"],
            ["*", "3", "--queue"],
            ["mail", "10/s", "--queue"],
        ],
    )
    def test_what_makes_no_sense_is_refused(self, arguments: list[str]) -> None:
        with pytest.raises(CommandError):
            jobs("limit", *arguments)
        assert not Limit.objects.exclude(override_allowed=None).exists()
        assert not Queue.objects.exists()

    def test_a_queue_may_get_a_limit_and_lose_it(self) -> None:
        Queue.objects.create(name="mail", paused_at=timezone.now())
        assert jobs("limit", "mail", "2", "--queue") == "Queue mail: 2 jobs at once in the whole fleet\n"
        assert Queue.objects.get().concurrency == 2
        assert Queue.objects.get().paused_at is not None
        assert jobs("limit", "mail", "--reset", "--queue") == "Queue mail: no limit\n"
        assert Queue.objects.get().concurrency is None


class TestPauseOfEverything:
    def test_nothing_starts_until_everything_is_resumed(self) -> None:
        tasks.nothing.enqueue()
        limited_tasks.crm_export.enqueue()
        assert jobs("pause", "--all") == "Paused until resumed: all queues\n"
        tasks.nothing.using(queue_name="made-later").enqueue()
        assert claim.look("default") == claim.Sight([], None, [])
        assert run_jobs() == []
        assert jobs("resume", "--all") == "Resumed: all queues\n"
        assert len(run_jobs()) == 3

    def test_a_queue_that_was_paused_by_name_stays_paused(self) -> None:
        jobs("pause", "exports")
        jobs("pause", "--all")
        assert jobs("resume", "--all") == "Resumed: all queues\nStill paused, by its name: exports\n"
        limited_tasks.crm_export.enqueue()
        assert run_jobs() == []

    def test_resuming_a_queue_does_not_end_the_pause_of_all_and_says_so(self) -> None:
        tasks.nothing.enqueue()
        jobs("pause", "default")
        jobs("pause", "--all")
        assert "But all queues are paused: manage.py jobs resume --all" in jobs("resume", "default")
        assert run_jobs() == []

    def test_it_may_end_after_a_span_and_status_says_when(self) -> None:
        jobs("pause", "--all", "--for", "2h")
        row = Queue.objects.get(name="*")
        assert row.resume_at is not None and row.resume_at > timezone.now() + timedelta(minutes=119)
        assert jobs("status").startswith("All queues are paused since 2")
        assert jobs_json("status")["all_paused_at"] is not None
        assert "*" not in [each["name"] for each in jobs_json("status")["queues"]]
        Queue.objects.update(resume_at=timezone.now() - timedelta(seconds=1))
        assert jobs_json("status")["all_paused_at"] is None
        tasks.nothing.enqueue()
        assert len(run_jobs()) == 1

    @pytest.mark.parametrize("verb", ["pause", "resume"])
    def test_either_queues_or_all(self, verb: str) -> None:
        assert failing(verb)[1] == failing(verb, "default", "--all")[1] == "Name queues, or say --all."

    def test_a_running_job_ends_as_usual(self) -> None:
        limited_tasks.one_at_a_time.enqueue()
        [job] = find_and_take(a_worker())
        jobs("pause", "--all")
        assert Job.objects.get(pk=job.id).status == "RUNNING"
