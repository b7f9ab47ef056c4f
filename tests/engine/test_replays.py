"""Whatever a job asks for, a replay that begins behind it finds it in the history, and returns or raises the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_reliable_jobs import emit_event, sleep, start_child, start_children, step, task, wait_for, wait_for_event
from django_reliable_jobs.models import Job
from tests import step_tasks
from tests.engine.test_undo import row
from tests.recorded import run_jobs
from tests.step_tasks import child, fails, leaves, make, unmake

pytestmark = pytest.mark.django_db

REPLAYS = 3


@task(max_attempts=1)
def asks() -> Any:
    return step_tasks.flow()


def many(*endings: str) -> list[Any]:
    children = start_children(child, [{"name": ending or "a", "ending": ending} for ending in endings])
    wait_for(children)
    return list(children.results())


def later(ask: Callable[[Any], Any], start: Callable[[], Any]) -> Any:
    """Wait for what has ended before it is asked for."""
    started = start()
    sleep("meanwhile", 60)
    return ask(started)


CONSTRUCTS: dict[str, Callable[[], Any]] = {
    "step": lambda: step("one", leaves, "one", {"id": 7}),
    "step without a result": lambda: step("one", leaves, "one"),
    "atomic step": lambda: step("one", leaves, "one", [1], atomic=True),
    "step with undo": lambda: step("one", make, "one", undo=unmake),
    "step that fails": lambda: step("one", fails, "one", max_attempts=2),
    "atomic step that fails": lambda: step("one", fails, "one", max_attempts=1, atomic=True),
    "step with undo that fails": lambda: step("one", fails, "one", max_attempts=1, undo=unmake),
    "step in a loop": lambda: [step("one", leaves, f"{number}", number) for number in range(3)],
    "sleep": lambda: sleep("nap", 10),
    "sleep that is over": lambda: sleep("nap", 0),
    "event": lambda: wait_for_event("came"),
    "event with a timeout": lambda: wait_for_event("came", timeout=60),
    "event that does not come": lambda: wait_for_event("never", timeout=60),
    "event that is asked for twice": lambda: [wait_for_event("came"), wait_for_event("came")],
    "child": lambda: wait_for(start_child(child, "a")),
    "child that dies": lambda: wait_for(start_child(child, "a", "dies")),
    "child that has ended before": lambda: later(wait_for, lambda: start_child(child, "a")),
    "child that has died before": lambda: later(wait_for, lambda: start_child(child, "a", "dies")),
    "children one by one": lambda: wait_for([start_child(child, "a"), start_child(child, "b")]),
    "children": lambda: many("", ""),
    "children of whom one dies": lambda: many("", "dies"),
    "no children": lambda: [many(), wait_for([])],
    "children that have ended before": lambda: later(
        lambda children: [wait_for(children) and None, list(children.results())],
        lambda: start_children(child, [{"name": "a"}, {"name": "b"}]),
    ),
}


@pytest.mark.parametrize("construct", CONSTRUCTS.values(), ids=CONSTRUCTS.keys())
def test_every_replay_gets_the_same(construct: Callable[[], Any]) -> None:
    seen: list[Any] = []

    def flow() -> str:
        try:
            seen.append(construct())
        except Exception as error:
            seen.append(repr(error))
        for _ in range(REPLAYS):
            sleep("then", 10)
        return "came through"

    emit_event("came", {"sum": 5})
    step_tasks.flow = flow
    job: Job = asks.enqueue()
    run_jobs(until=timedelta(hours=1))
    assert (row(job).status, row(job).result) == ("SUCCEEDED", "came through"), row(job).reason
    assert seen == seen[:1] * (REPLAYS + 1)
