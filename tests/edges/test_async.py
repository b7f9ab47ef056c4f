"""From coroutines: under ASGI, and in tasks that are coroutines themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.http import HttpResponse
from django.test import AsyncClient
from django.urls import path

import django_reliable_jobs
from django_reliable_jobs.exceptions import JobFailed
from django_reliable_jobs.models import Checkpoint, Job
from django_reliable_jobs.sync_only import refuse_on_event_loop
from tests import async_tasks, tasks
from tests.models import Effect
from tests.recorded import run_jobs
from tests.workers import WorkerProcess


@pytest.mark.django_db
def test_coroutines_enqueue_one_job_and_many() -> None:
    async def view() -> list[Job]:
        return [
            await tasks.effect.aenqueue("a"),
            *await tasks.effect.aenqueue_many([{"name": "b"}, {"name": "c"}]),
            *await tasks.effect.using(priority=5).aenqueue_many([{"name": "d"}]),
        ]

    jobs = async_to_sync(view)()
    assert [(job.args or job.kwargs, job.priority) for job in Job.objects.order_by("id")] == [
        (["a"], 0),
        ({"name": "b"}, 0),
        ({"name": "c"}, 0),
        ({"name": "d"}, 5),
    ]
    assert [job.pk for job in jobs] == sorted(Job.objects.values_list("pk", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: tasks.effect.enqueue("a"), "aenqueue("),
        (lambda: tasks.effect.using(priority=1).enqueue("a"), "aenqueue("),
        (lambda: tasks.effect.enqueue_many([{"name": "a"}]), "aenqueue_many("),
        (lambda: Job(pk=1).wait(), "await_result("),
        (lambda: django_reliable_jobs.emit_event("a"), "aemit_event("),
    ],
)
def test_what_would_block_the_event_loop_names_what_to_await(call: Callable[[], Any], instead: str) -> None:
    async def view() -> None:
        call()

    with pytest.raises(SynchronousOnlyOperation) as error:
        asyncio.run(view())
    assert instead in str(error.value)


def test_djangos_variable_for_notebooks_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cell() -> None:
        refuse_on_event_loop("this", "that")

    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    asyncio.run(cell())
    monkeypatch.delenv("DJANGO_ALLOW_ASYNC_UNSAFE")
    with pytest.raises(SynchronousOnlyOperation, match=r"this would block .* use that"):
        asyncio.run(cell())


@pytest.mark.django_db
def test_the_context_of_a_coroutine_saves_loads_and_fences() -> None:
    job = async_tasks.saves.enqueue()
    run_jobs()
    job.refresh_from_db()
    assert (job.status, job.result) == ("SUCCEEDED", ["nothing yet", {"n": 1}, "written"])
    assert list(Checkpoint.objects.order_by("name").values_list("name", "value")) == [("a", {"n": 1}), ("b", 2)]
    assert Effect.objects.get().name == "fenced"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("method", "instead"),
    [("save_checkpoint", "asave_checkpoint("), ("load_checkpoint", "aload_checkpoint("), ("fenced", "afenced(")],
)
def test_a_coroutine_that_calls_the_plain_method_learns_which_one_to_await(method: str, instead: str) -> None:
    job = async_tasks.calls.enqueue(method)
    run_jobs()
    [attempt] = job.attempts.all()
    assert attempt.error_class == "django.core.exceptions.SynchronousOnlyOperation"
    assert instead in attempt.error_message


@pytest.mark.django_db
def test_what_fails_in_a_fenced_function_is_not_written() -> None:
    async_tasks.fails_fenced.enqueue()
    run_jobs()
    assert not Effect.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_waits_for_the_end_of_a_job_and_the_loop_goes_on(
    start_worker: Callable[..., WorkerProcess],
) -> None:
    start_worker("--queue", "default")
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def view() -> Any:
        ticking = asyncio.create_task(tick())
        job = await tasks.slow.aenqueue(0.3)
        assert await job.await_result(timeout=20) is None
        ticking.cancel()
        job = await tasks.effect.aenqueue("a")
        assert await job.await_result(timeout=20) == "a"
        job = await tasks.once.using(queue_name="nobody").aenqueue()
        with pytest.raises(TimeoutError, match=r"still READY after 0\.05 s"):
            await job.await_result(timeout=0.05)
        job = await tasks.ends_by.aenqueue("fail")
        with pytest.raises(JobFailed, match="asked to fail"):
            await job.await_result(timeout=20)

    async_to_sync(view)()
    assert len(ticks) > 5


async def place(request: Any) -> HttpResponse:
    job = await tasks.effect.aenqueue("from a view")
    await django_reliable_jobs.aemit_event("placed", {"job": job.pk})
    return HttpResponse(str(job.pk))


urlpatterns = [path("place/", place)]


@pytest.mark.django_db
def test_a_view_under_asgi_enqueues(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    response = async_to_sync(AsyncClient().get)("/place/")
    assert Job.objects.get().pk == int(response.content)
    assert run_jobs()[0].result == "from a view"


@pytest.mark.django_db(transaction=True)
def test_waiting_in_a_transaction_is_refused() -> None:
    with transaction.atomic():
        job = tasks.effect.enqueue("a")
        with pytest.raises(RuntimeError, match="no worker sees the job before COMMIT"):
            async_to_sync(job.await_result)()
        with pytest.raises(RuntimeError, match="no worker sees the job before COMMIT"):
            job.wait()


@pytest.mark.django_db(transaction=True)
def test_a_worker_gives_coroutines_all_of_it(start_worker: Callable[..., WorkerProcess]) -> None:
    job = async_tasks.saves.enqueue()
    chain = async_tasks.enqueues.enqueue(3)
    assert start_worker("--burst", ready=False).wait() == 0
    for each in (job, chain):
        each.refresh_from_db()
        assert each.status == "SUCCEEDED", each.reason
    assert Job.objects.filter(task="tests.async_tasks.enqueues", status="SUCCEEDED").count() == 4
