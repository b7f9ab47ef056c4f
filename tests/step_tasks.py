"""Tasks that work in steps; what they do leaves effects, so that a test can count it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_reliable_jobs import (
    Cancel,
    Fail,
    Retry,
    Snooze,
    current_job,
    exponential,
    sleep,
    start_child,
    start_children,
    step,
    task,
    wait_for,
    wait_for_event,
)
from django_reliable_jobs.exceptions import EventTimeout, StepFailed
from tests import killing
from tests.models import Effect
from tests.tasks import bury, leave_effect

AT_ONCE = exponential(first=0, maximum=0, jitter=0)
IN_A_MINUTE = exponential(first=60, maximum=60, jitter=0)

flow: Any = None  # what `follows` runs; a test sets it


@task(max_attempts=3, backoff=AT_ONCE)
def follows(*args: Any, **kwargs: Any) -> Any:
    """Run whatever the test says: the code of a task as it is deployed at this moment."""
    return flow(*args, **kwargs)


@task(max_attempts=3, backoff=AT_ONCE, atomic=True)
def follows_atomically() -> Any:
    return flow()


@task(max_attempts=1)
def follows_once() -> Any:
    return flow()


@task(max_attempts=3, backoff=IN_A_MINUTE)
def follows_in_a_minute() -> Any:
    return flow()


@task(max_attempts=3, backoff=AT_ONCE, give_up_on=(ValueError,))
def gives_up() -> Any:
    return flow()


def leaves(name: str, result: Any = None) -> Any:
    leave_effect(name)
    return result


def fails(name: str, message: str = "it broke") -> Any:
    leave_effect(name)
    raise ValueError(message)


def fails_until(name: str, tries: int) -> str:
    leave_effect(name)
    if Effect.objects.filter(name=name).count() < tries:
        raise ConnectionError(f"{name} is not ready")
    return name


def raises_ending(ending: str) -> None:
    leave_effect(ending)
    raise {
        "retry": Retry(60, "later"),
        "snooze": Snooze(60, "later"),
        "cancel": Cancel("no longer"),
        "fail": Fail("never"),
    }[ending]


@task()
def waits(name: str, seconds: float | None = None) -> Any:
    """Wait for an event and return its payload, or "too late"."""
    try:
        return wait_for_event(name, timeout=None if seconds is None else timedelta(seconds=seconds))
    except EventTimeout:
        return "too late"


@task()
def naps(seconds: float) -> str:
    step("before", leaves, "before")
    sleep("nap", timedelta(seconds=seconds))
    step("after", leaves, "after")
    return "rested"


@task()
def sleeps_until(moment: str) -> None:
    sleep("until", datetime.fromisoformat(moment))


@task()
def waits_inside_a_transaction() -> None:
    with transaction.atomic():
        wait_for_event("never")


def catches_everything(name: str) -> Any:
    """Catch all that an ordinary handler can, around a wait."""
    try:
        return wait_for_event(name)
    except Exception as error:
        leave_effect(f"caught {error!r}")
        return None


def takes_another_way() -> str:
    try:
        step("first way", fails, "first way", max_attempts=1)
    except StepFailed:
        step("other way", leaves, "other way")
        return "other"
    return "first"


@task()
def gives_up_a_slow_step(seconds: float) -> str:
    step("before", leaves, "before")
    try:
        step("slow", sleeps_in_the_database, timeout=seconds, max_attempts=2, backoff=AT_ONCE)
    except StepFailed:
        return "gave up"
    return "was patient"


@task()
def keeps_a_step_with_a_slow_hook() -> str:
    try:
        return step("hooked", leaves_with_a_slow_hook, atomic=True, timeout=0.3, max_attempts=2, backoff=AT_ONCE)
    except StepFailed:
        return "gave up"


def leaves_with_a_slow_hook() -> str:
    leave_effect("hooked")
    transaction.on_commit(look_slowly)
    return "kept"


def look_slowly() -> None:
    # Longer than the step may take, and a query after that, which is a safe point.
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.8)")
        cursor.execute("SELECT 1")


def sleeps_in_the_database() -> None:
    leave_effect("slow")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")


@task()
async def waits_in_a_coroutine(name: str) -> list[Any]:
    kept = await sync_to_async(step)("once", leaves, "once", "kept")
    return [kept, await sync_to_async(wait_for_event)(name)]


@task(max_attempts=1)
async def asks_on_the_event_loop() -> None:
    step("once", leaves, "once")


def make(name: str) -> str:
    """Make a thing."""
    leave_effect(f"make {name}")
    return f"<{name}>"


def makes_half(name: str) -> None:
    leave_effect(f"half of {name}")
    raise ValueError("the other half is missing")


def refuses(name: str) -> None:
    leave_effect("refused")
    raise Fail(f"{name} can't be made")


def unmake(made: str, name: str) -> None:
    """Undo `make`."""
    assert made == f"<{name}>"
    leave_effect(f"unmake {name}")


def unmake_in_the_third_try(made: str, name: str) -> None:
    leave_effect(f"try to unmake {name}")
    if Effect.objects.filter(name=f"try to unmake {name}").count() < 3:
        raise ConnectionError(f"{name} is stuck")


def unmake_while_it_is_broken(made: str, name: str) -> None:
    """Fail until somebody mends it."""
    leave_effect(f"unmake {name}, broken")
    if not Effect.objects.filter(name="mended").exists():
        raise ValueError(f"{name} can't be unmade")


def asks_for_a_step(made: str, name: str) -> None:
    step("inside", leaves, "inside an undo")


@task(max_attempts=2, backoff=AT_ONCE)
def makes_three(ending: str = "fails") -> str:
    """Make a, b and c, and then end in one way or another."""
    for name in ("a", "b", "c"):
        step(f"make {name}", make, name, undo=unmake, atomic=name == "b")
    if ending == "waits":
        wait_for_event("never")
    if ending == "sleeps":
        sleep("nap", 1000)
    if ending == "fails":
        raise ValueError("the end")
    return "made"


def makes_what_is_no_json(name: str) -> object:
    make(name)
    return object()


@task(max_attempts=1, backoff=AT_ONCE, on_dead=bury)
def breaks_and_is_buried() -> None:
    step("make a", make, "a", undo=unmake_while_it_is_broken)
    raise Fail("the end")


look: Any = None  # what `makes_and_looks` calls; a test sets it


def makes_and_looks(name: str) -> str:
    look()
    return make(name)


@task(max_attempts=1, on_dead=bury)
def makes_one_and_is_buried() -> None:
    step("make a", make, "a", undo=unmake)
    raise ValueError("the end")


@task(max_attempts=1)
def child(name: str, ending: str = "") -> str:
    """End as it is told."""
    leave_effect(f"child {name}")
    if ending == "dies":
        raise ValueError(f"{name} is ill")
    if ending == "is cancelled":
        raise Cancel(f"{name} does not want to")
    if ending == "waits":
        wait_for_event(f"for {name}")
    return name.upper()


@task(max_attempts=1)
def child_that_is_ill(name: str) -> str:
    """Die until somebody has healed it."""
    if not Effect.objects.filter(name="healed").exists():
        raise ValueError(f"{name} is ill")
    return name.upper()


@task(atomic=True)
def atomic_child(name: str) -> str:
    leave_effect(f"child {name}")
    return name.upper()


@task()
def has_one_child(ending: str = "") -> list[Any]:
    return ["of", wait_for(start_child(child, "a", ending))]


@task()
def child_of_days() -> str:
    sleep("three days", timedelta(days=3))
    if current_job().attempt == 1:
        raise Retry(60)
    return "after 3 days"


@task()
def has_a_child_of_days() -> Any:
    return wait_for(start_child(child_of_days))


@task(backoff=AT_ONCE)
def has_children(names: list[str]) -> list[Any]:
    children = [start_child(child, name) for name in names]
    step("between", leaves, "between")
    return wait_for(children)


@task()
def has_many_children(count: int) -> list[Any]:
    children = start_children(child, ({"name": str(number)} for number in range(count)))
    wait_for(children)
    return [children.count, sum(int(result) for result in children.results())]


@task()
def follows_a_batch(batch_id: int) -> int:
    leave_effect("follows")
    return batch_id


@task()
def follows_success(batch_id: int) -> None:
    leave_effect("success")


@task()
def follows_failure(batch_id: int) -> None:
    leave_effect("failure")


killing.install()
