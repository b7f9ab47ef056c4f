from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_reliable_jobs.engine import claim, exchange, heartbeat, queues, wakeup
from django_reliable_jobs.engine.claim import Arm
from django_reliable_jobs.models import Job, Queue
from django_reliable_jobs.testing import at, run_jobs
from tests import tasks
from tests.actors import on_stage, wait_until_blocked
from tests.states import a_worker


@pytest.mark.django_db
def test_a_paused_queue_is_not_looked_at_and_not_claimed_from() -> None:
    tasks.effect.enqueue("waits")
    queues.pause("default", ["default"])
    assert claim.look("default")[0] == []
    # A worker that looked before the pause still asks for the queue.
    assert exchange.exchange("default", 1, [], [Arm("default", 0, 1)], limit=1, free=1) == (set(), [])


@pytest.mark.django_db
def test_other_queues_are_served_while_one_is_paused() -> None:
    tasks.effect.enqueue("waits")
    tasks.effect.using(queue_name="urgent").enqueue("runs")
    queues.pause("default", ["default"])
    assert [job.queue_name for job in run_jobs()] == ["urgent"]


@pytest.mark.django_db
def test_a_job_that_was_claimed_before_the_pause_ends_as_usual() -> None:
    job = tasks.effect.enqueue("runs")
    _, [claimed] = exchange.exchange("default", 1, [], [Arm("default", 0, 1)], limit=1, free=1)
    queues.pause("default", ["default"])
    assert claimed.id == job.pk
    assert Job.objects.get().status == "RUNNING"


@pytest.mark.django_db
def test_a_resumed_queue_is_served() -> None:
    tasks.effect.enqueue("runs")
    queues.pause("default", ["default"])
    assert run_jobs() == []
    assert queues.resume("default", ["default"]) == ["default"]
    assert [job.status for job in run_jobs()] == ["SUCCEEDED"]


@pytest.mark.django_db
def test_a_queue_is_served_from_the_moment_at_which_it_resumes_although_nobody_cleared_its_row() -> None:
    now = timezone.now()
    with at(now):
        tasks.effect.enqueue("runs")
        queues.pause("default", ["default"], resume_at=now + timedelta(hours=1))
    with at(now + timedelta(minutes=59, seconds=59)):
        assert run_jobs() == []
    with at(now + timedelta(hours=1)):
        assert [job.status for job in run_jobs()] == ["SUCCEEDED"]
    assert Queue.objects.get().paused_at is not None


@pytest.mark.django_db
def test_pausing_again_keeps_the_moment_of_the_first_pause_and_takes_the_last_word_on_its_end() -> None:
    now = timezone.now()
    with at(now):
        assert queues.pause("default", ["a"], now + timedelta(hours=1)).paused == ["a"]
    with at(now + timedelta(minutes=1)):
        again = queues.pause("default", ["b", "a"])
    assert (again.paused, again.paused_before) == (["b"], ["a"])
    assert Queue.objects.filter(name="a").values_list("paused_at", "resume_at").get() == (now, None)


@pytest.mark.django_db
def test_pausing_after_a_pause_ran_out_begins_a_new_one() -> None:
    now = timezone.now()
    later = now + timedelta(hours=2)
    with at(now):
        queues.pause("default", ["a"], now + timedelta(hours=1))
    with at(later):
        assert queues.pause("default", ["a"]).paused == ["a"]
    assert Queue.objects.get().paused_at == later


@pytest.mark.django_db
def test_resuming_reports_only_what_was_paused() -> None:
    now = timezone.now()
    with at(now):
        queues.pause("default", ["ran out"], now + timedelta(seconds=1))
        queues.pause("default", ["paused"])
    with at(now + timedelta(seconds=1)):
        assert queues.resume("default", ["never paused", "ran out", "paused", "paused"]) == ["paused"]


@pytest.mark.django_db
def test_pause_and_resume_leave_the_concurrency_of_a_queue_alone() -> None:
    Queue.objects.create(name="a", concurrency=3)
    queues.pause("default", ["a"])
    queues.resume("default", ["a"])
    assert Queue.objects.values().get() == {"name": "a", "paused_at": None, "resume_at": None, "concurrency": 3}


@pytest.mark.django_db(transaction=True)
def test_two_operators_lock_queues_by_name_and_so_do_not_deadlock() -> None:
    for name in ("c", "b", "a"):  # in this order in the table
        queues.pause("default", [name])
    with on_stage("first", "second") as (first, second):
        first.begins()
        first.does(queues.pause, "default", ["b"])
        waits = second.starts(queues.resume, "default", ["c", "b", "a"])
        wait_until_blocked(second)
        # The second holds "a", which comes before "b", and not yet "c".
        first.does(queues.pause, "default", ["c"])
        first.commits()
        assert waits.result(timeout=60) == ["a", "b", "c"]


@pytest.mark.django_db(transaction=True)
def test_a_resume_that_waits_for_a_pause_to_commit_ends_that_pause() -> None:
    queues.pause("default", ["a"])
    queues.resume("default", ["a"])
    with on_stage("pauses", "pauses again", "resumes") as (pauses, again, resumes):
        pauses.begins()
        pauses.does(queues.pause, "default", ["a"])
        waits = again.starts(queues.pause, "default", ["a"])
        wait_until_blocked(again)
        # The row that its snapshot shows is not paused: it comes before the pause, and ends none.
        assert resumes.does(queues.resume, "default", ["a"]) == []
        pauses.commits()
        assert waits.result(timeout=60).paused_before == ["a"]
        assert resumes.does(queues.resume, "default", ["a"]) == ["a"]


@pytest.mark.django_db(transaction=True)
def test_resume_wakes_idle_workers() -> None:
    queues.pause("default", ["default"])
    a_worker(is_idle=True)
    with wakeup.listening("default", None) as listener:
        queues.resume("default", ["default"])
        assert [each.payload for each in listener.notifies(timeout=60, stop_after=1)] == ["default"]


@pytest.mark.django_db(transaction=True)
def test_a_job_that_was_passed_over_is_not_claimed_once_its_queue_is_paused() -> None:
    job = tasks.effect.enqueue("waits")
    queues.pause("default", ["default"])
    identity = heartbeat.new_identity("test", 0)
    assert claim.claim_passed_over("default", identity.id, job.pk, patience=1) is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("serves", [None, ["mail"]])
def test_every_idle_worker_is_woken_when_everything_is_resumed(serves: list[str] | None) -> None:
    a_worker(serves=serves, is_idle=True)
    queues.pause("default", [queues.ALL])
    with wakeup.listening("default", None) as connection:
        queues.resume("default", [queues.ALL])
        [notification] = connection.notifies(timeout=60, stop_after=1)
    assert notification.payload == ("mail" if serves else "*")
