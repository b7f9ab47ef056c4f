"""Jobs that a running job starts and waits for, without holding a worker meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, overload

from django_reliable_jobs import arguments
from django_reliable_jobs.context import current_job
from django_reliable_jobs.exceptions import ChildFailed, InvalidStep
from django_reliable_jobs.placement import Placement
from django_reliable_jobs.registry import Task
from django_reliable_jobs.retry import LONGEST_SPAN
from django_reliable_jobs.step_port import deleted
from django_reliable_jobs.steps import kept, step_port, suspend


@dataclass(frozen=True)
class Child:
    """A job that was started by `start_child`. `id` is the job's."""

    id: int
    batch_id: int


@dataclass(frozen=True)
class Children:
    """Jobs that were started together by `start_children`."""

    batch_id: int
    count: int

    def results(self) -> Iterator[Any]:
        """Yield the results in the order of the calls, read page by page from the children's rows.

        Raises ChildFailed at the end if rows of children were deleted, as the results are not all.
        """
        missing = self.count
        for result in step_results(self.batch_id):
            missing -= 1
            yield result
        if missing > 0:
            raise ChildFailed([deleted(missing)])


def start_child(task: Task[..., Any] | Placement[..., Any], /, *args: Any, **kwargs: Any) -> Child:
    """Enqueue a job of its own once in this run of the job, and return it: the same in every replay.

    It is enqueued in the transaction that keeps this. `task.using(...)` chooses its queue, priority or moment.
    """
    placement = _placement(task)
    port = step_port("start_child", placement.task.name)
    asked = port.ask(placement.task.name, "child", placement.task.name)
    if asked.stored is not None:
        given = arguments.load(asked.stored.value)
    else:
        with kept(port):
            given = port.start_children(asked.name, placement, (args, kwargs))
    return Child(given["job"], given["batch"])


def start_children(
    task: Task[..., Any] | Placement[..., Any], calls: Iterable[Mapping[str, Any]], *, name: str | None = None
) -> Children:
    """Enqueue a job for each dict of keyword arguments, once in this run of the job: thousands are one step."""
    placement = _placement(task)
    name = name or f"{placement.task.name}s"
    port = step_port("start_children", name)
    asked = port.ask(name, "child", placement.task.name)
    if asked.stored is not None:
        given = arguments.load(asked.stored.value)
    else:
        with kept(port):
            given = port.start_children(asked.name, placement, list(calls))
    return Children(given["batch"], given["count"])


@overload
def wait_for(children: Child) -> Any: ...
@overload
def wait_for(children: Children) -> Iterator[Any]: ...
@overload
def wait_for(children: Iterable[Child]) -> list[Any]: ...
def wait_for(children: Child | Children | Iterable[Child]) -> Any:
    """Give the worker back until the children have ended; return the result, or the results in the given order.

    Those of `start_children` are an iterator, which reads them page by page. Raises ChildFailed, in this and every
    replay, if one of them ended without success.
    """
    port = step_port("wait_for", "children")
    one_by_one = None if isinstance(children, Children) else _as_list(children)
    if one_by_one == []:
        return []
    asked = port.ask("children", "children")
    stored = asked.stored
    if stored is None or stored.state == "waiting":
        with kept(port):
            if isinstance(children, Children):
                stored = port.wait_for_batches(asked.name, [children.batch_id], None, children.count)
            else:
                batches = sorted({child.batch_id for child in one_by_one or ()})
                stored = port.wait_for_batches(asked.name, batches, [child.id for child in one_by_one or ()])
    if stored is None:
        return suspend(port, "waits for its children", LONGEST_SPAN)
    value = arguments.load(stored.value)
    if stored.state == "failed":
        raise ChildFailed(value["failures"])
    if isinstance(children, Children):
        return children.results()
    return value["results"][0] if isinstance(children, Child) else value["results"]


def step_results(batch_id: int) -> Iterator[Any]:
    """Yield the results of the jobs of a batch of the running job's children."""
    port = current_job()._port
    results: Iterator[Any] = port.results(batch_id)  # type: ignore[attr-defined]
    return results


def _as_list(children: Child | Iterable[Child]) -> list[Child]:
    given = list(children) if isinstance(children, Iterable) else [children]
    if not all(isinstance(each, Child) for each in given):
        raise InvalidStep("wait_for() takes what start_child() or start_children() returned, or a list of the first")
    return given


def _placement(task: Any) -> Placement[..., Any]:
    if isinstance(task, Task):
        return Placement(task=task)
    if isinstance(task, Placement):
        return task
    raise InvalidStep(f"a child is started of a task, or of task.using(...), not of {task!r:.80}")
