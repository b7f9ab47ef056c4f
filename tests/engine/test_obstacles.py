from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from django_reliable_jobs import registry
from django_reliable_jobs.engine import inspection, lifecycle, obstacles, queues
from django_reliable_jobs.models import Job, Limit, Pace, Queue, Worker
from django_reliable_jobs.testing import at
from tests import tasks
from tests.recorded import run_jobs
from tests.states import a_worker, claim_one


def explain(job: Job) -> list[str]:
    return obstacles.explain_waiting("default", Job.objects.get(pk=job.pk))


@pytest.mark.django_db
def test_a_job_with_nothing_in_its_way_says_so() -> None:
    a_worker()
    assert explain(tasks.nothing.enqueue()) == ["Nothing is in its way: a worker takes it at its next look."]


@pytest.mark.django_db
def test_a_job_says_that_no_worker_is_running() -> None:
    a_worker(lost_at=Now())
    assert explain(tasks.nothing.enqueue()) == ["No worker is running. Start one: `manage.py runworker`."]


@pytest.mark.django_db
def test_a_job_says_that_no_running_worker_serves_its_queue() -> None:
    a_worker(serves=["mail"])
    [sentence] = explain(tasks.nothing.enqueue())
    assert sentence.startswith("Workers are running (1), but none serves its queue.")
    assert "--queue default" in sentence


@pytest.mark.django_db
def test_a_job_says_that_its_queue_is_paused_and_until_when() -> None:
    a_worker()
    tasks.nothing.enqueue()
    job = tasks.nothing.enqueue()
    queues.pause("default", ["default"])
    [sentence] = explain(job)
    assert "is paused since" in sentence and "until `manage.py jobs resume default`" in sentence
    queues.pause("default", ["default"], timezone.now() + timedelta(days=1))
    [sentence] = explain(job)
    assert inspection.as_local(timezone.now() + timedelta(days=1))[:10] in sentence


@pytest.mark.django_db
def test_a_job_says_when_it_is_scheduled() -> None:
    a_worker()
    job = tasks.nothing.using(run_after=timedelta(hours=1)).enqueue()
    assert explain(job) == [f"It is scheduled for {inspection.as_local(job.run_after)}."]


@pytest.mark.django_db
def test_an_overdue_job_that_nobody_promoted_says_so() -> None:
    job = tasks.nothing.using(run_after=timedelta(minutes=1)).enqueue()
    with at(timezone.now() + timedelta(minutes=2)):
        assert explain(job)[0].startswith("It was due at ")


@pytest.mark.django_db
def test_a_retry_says_why_it_was_put_back() -> None:
    a_worker()
    job = tasks.fails.enqueue("no dial tone")
    run_jobs()
    assert explain(job)[1] == "It was put back: ValueError: no dial tone"


@pytest.mark.django_db
def test_a_job_whose_task_no_worker_knew_says_so_twice_over() -> None:
    a_worker()
    job = Job.objects.create(task="tests.tasks.efect")
    run_jobs()
    sentences = " ".join(explain(job))
    assert "no worker that claimed it knows the task 'tests.tasks.efect'" in sentences
    assert "did you mean 'tests.tasks.effect'?" in sentences


@pytest.mark.django_db
def test_a_job_says_that_no_worker_of_its_queue_knows_its_task() -> None:
    a_worker(tasks=["tests.tasks.effect"])
    a_worker(serves=["mail"], tasks=["tests.tasks.nothing"])
    a_worker(tasks=["tests.tasks.nothing"], lost_at=Now())
    job = tasks.nothing.enqueue()
    [sentence] = explain(job)
    assert sentence.startswith("None of the workers that serve its queue (1) knew its task when it started")
    a_worker(tasks=["tests.tasks.nothing"])
    assert explain(job) == ["Nothing is in its way: a worker takes it at its next look."]


@pytest.mark.django_db
def test_a_worker_that_starts_tells_every_name_of_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._tasks, "tests.tasks.an_old_name", tasks.nothing)
    a_worker()
    assert set(registry._tasks) == set(Worker.objects.get().tasks)
    renamed = Job.objects.create(task="tests.tasks.an_old_name")
    assert explain(renamed) == ["Nothing is in its way: a worker takes it at its next look."]


@pytest.mark.django_db
def test_tasks_that_no_worker_of_their_queue_knows_are_found_whatever_their_jobs_wait_for() -> None:
    a_worker(tasks=["known"])
    for changes in ({}, {"status": "SCHEDULED"}, {"concurrency_key": "crm"}, {"queue_name": "mail"}):
        Job.objects.create(task="unknown", **changes)
    Job.objects.create(task="known")
    found = inspection.unknown_tasks("default")
    assert [(each.task, each.queue_name, each.jobs) for each in found] == [
        ("unknown", "default", 3),
        ("unknown", "mail", 1),
    ]
    a_worker(serves=["mail"], tasks=["unknown"])
    assert [(each.queue_name, each.jobs) for each in inspection.unknown_tasks("default")] == [("default", 3)]
    a_worker(tasks=["unknown"], is_stopping=True)
    assert inspection.unknown_tasks("default")


@pytest.mark.django_db
def test_without_a_worker_that_serves_its_queue_no_task_is_called_unknown() -> None:
    Job.objects.create(task="unknown")
    a_worker(serves=["mail"], tasks=[])
    assert inspection.unknown_tasks("default") == []


@pytest.mark.django_db
def test_a_job_that_expired_says_that_it_will_not_run() -> None:
    a_worker()
    job = tasks.nothing.enqueue()
    Job.objects.update(expires_at=Now() - timedelta(seconds=1))
    assert "a worker will cancel it, and not run it" in explain(job)[0]


@pytest.mark.django_db
def test_a_job_says_how_many_start_before_it_and_that_the_workers_are_busy() -> None:
    worker_id = a_worker()
    tasks.nothing.enqueue_many([{}] * 4)
    tasks.nothing.using(priority=10).enqueue()
    last = tasks.nothing.enqueue()
    tasks.nothing.using(priority=-10).enqueue()
    for _ in range(2):
        claim_one(worker_id)
    assert explain(last) == [
        "Ready jobs of its queue that start before it: 3.",
        "The workers that serve its queue are busy: 2 jobs run on 2 threads.",
    ]


@pytest.mark.django_db
def test_the_line_before_a_job_is_counted_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstacles, "MOST_AHEAD", 3)
    a_worker()
    tasks.nothing.using(priority=10).enqueue_many([{}] * 5)
    tasks.nothing.enqueue_many([{}] * 5)
    assert explain(tasks.nothing.enqueue()) == ["Ready jobs of its queue that start before it: 3 or more."]


@pytest.mark.django_db
def test_a_job_that_runs_or_has_ended_has_nothing_to_explain() -> None:
    worker_id = a_worker()
    ended = tasks.nothing.enqueue()
    run_jobs()
    running = tasks.nothing.enqueue()
    claim_one(worker_id)
    assert explain(ended) == explain(running) == []


@pytest.mark.django_db
def test_a_job_that_somebody_asked_to_cancel_says_so() -> None:
    worker_id = a_worker()
    job = tasks.fails.enqueue()
    claim_one(worker_id)
    lifecycle.cancel("default", [job.pk], reason="enough")
    request = inspection.find_cancel_request("default", job.pk)
    assert request is not None and request.reason == "enough"
    Job.objects.update(status="READY")  # it was released between the request and its worker's heartbeat
    assert "Somebody asked to cancel it: a worker will do that, and not run it." in explain(job)


def a_running_row(**keys: str) -> None:
    Job.objects.create(
        task="tests.tasks.nothing",
        status="RUNNING",
        token=1,
        worker_id=1,
        claims=1,
        **{"started_at": Now(), **keys},
    )


@pytest.mark.django_db
def test_a_job_says_that_its_limit_is_used_up() -> None:
    a_worker()
    Limit.objects.create(kind="concurrency", name="crm", allowed=2)
    job = Job.objects.create(task="tests.tasks.nothing", concurrency_key="crm:customer=1")
    a_running_row(concurrency_key="crm:customer=2")
    a_running_row(concurrency_key="crm:customer=1")
    assert explain(job) == ["Nothing is in its way: a worker takes it at its next look."]
    a_running_row(concurrency_key="crm:customer=1")
    holders = Job.objects.filter(status="RUNNING", concurrency_key="crm:customer=1").order_by("pk")
    ids = ", ".join(str(each.pk) for each in holders)
    assert explain(job) == [f"Its limit, crm:customer=1, allows 2 jobs at once, and 2 run: {ids}."]


@pytest.mark.django_db
def test_of_many_jobs_that_hold_a_limit_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstacles, "MOST_HOLDERS", 1)
    a_worker()
    Limit.objects.create(kind="concurrency", name="crm", allowed=2)
    job = Job.objects.create(task="tests.tasks.nothing", concurrency_key="crm")
    for _ in range(2):
        a_running_row(concurrency_key="crm")
    first = Job.objects.filter(status="RUNNING").earliest("pk")
    assert explain(job) == [f"Its limit, crm, allows 2 jobs at once, and 2 run: {first.pk}, …."]


@pytest.mark.django_db
def test_a_job_says_that_every_queue_is_paused() -> None:
    a_worker()
    job = tasks.nothing.enqueue()
    queues.pause("default", [queues.ALL])
    [sentence] = explain(job)
    assert sentence.startswith("All queues are paused since 2") and "until `manage.py jobs resume --all`" in sentence


@pytest.mark.django_db
def test_a_job_says_when_its_rate_lets_the_next_job_start() -> None:
    a_worker()
    limit = Limit.objects.create(kind="rate", name="mail", allowed=6, period=60, burst=1)
    job = Job.objects.create(task="tests.tasks.nothing", rate_key="mail")
    now = timezone.now() + timedelta(seconds=1)
    with at(now):
        assert explain(job) == ["Nothing is in its way: a worker takes it at its next look."]
        Pace.objects.create(key="mail", paid_until=now + timedelta(seconds=4))
        assert explain(job) == ["Its rate limit, mail, lets the next job start in 4.0 s."]
        limit.allowed, limit.period = 1, 3600
        limit.save()
        Pace.objects.update(paid_until=now + timedelta(minutes=30))
        moment = inspection.as_local(now + timedelta(minutes=30))
        assert explain(job) == [f"Its rate limit, mail, lets the next job start at {moment}."]
    limit.override_allowed, limit.override_period, limit.override_burst = 0, 60, 1
    limit.save()
    assert explain(job) == ["Its rate limit, mail, lets no job start."]


@pytest.mark.django_db
def test_a_job_of_a_schedule_says_that_an_earlier_one_still_runs() -> None:
    a_worker()
    job = Job.objects.create(task="tests.tasks.nothing", serial_key="schedule:1")
    a_running_row(serial_key="schedule:2")
    assert explain(job) == ["Nothing is in its way: a worker takes it at its next look."]
    a_running_row(serial_key="schedule:1")
    earlier = Job.objects.get(status="RUNNING", serial_key="schedule:1").pk
    assert explain(job) == [f"An earlier job of its schedule, {earlier}, runs, and it waits for that one's end."]


@pytest.mark.django_db
def test_a_job_says_that_its_queue_runs_as_many_as_it_may() -> None:
    a_worker()
    Queue.objects.create(name="default", concurrency=1)
    job = tasks.nothing.enqueue()
    a_running_row(queue_name="mail")
    assert explain(job) == ["Nothing is in its way: a worker takes it at its next look."]
    a_running_row()
    assert explain(job) == ["Its queue, default, allows 1 jobs at once, and 1 run."]


@pytest.mark.django_db
def test_a_limited_job_counts_those_before_it_with_the_same_limits() -> None:
    a_worker()
    Limit.objects.create(kind="concurrency", name="crm", allowed=2)
    before = {"task": "tests.tasks.nothing", "concurrency_key": "crm"}
    Job.objects.create(**before)
    Job.objects.create(**before, priority=1)
    Job.objects.create(**before, rate_key="mail")
    tasks.nothing.enqueue()
    assert explain(Job.objects.create(**before)) == ["Ready jobs with its limits that start before it: 2."]


@pytest.mark.django_db
def test_a_slot_that_is_past_its_last_start_will_not_run() -> None:
    a_worker()
    job = tasks.nothing.enqueue()
    Job.objects.update(start_before=Now() - timedelta(seconds=1), expires_at=Now() + timedelta(hours=1))
    assert "a worker will cancel it, and not run it" in explain(job)[0]
