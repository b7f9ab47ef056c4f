"""Declaring tasks and finding them by name. Needs no settings and no models until a job is enqueued."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, KeysView, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from django_reliable_jobs import declaration, limits
from django_reliable_jobs.arguments import accepts_by_name
from django_reliable_jobs.exceptions import InvalidTask, UnknownTask
from django_reliable_jobs.limits import Concurrency, Rate
from django_reliable_jobs.placement import Placement as Placement
from django_reliable_jobs.retry import DEFAULT_POLICY, RetryPolicy
from django_reliable_jobs.task_options import DEFAULTS, Choices, OnDuplicate, Options, UniqueKey

if TYPE_CHECKING:
    from django_reliable_jobs.context import JobContext
    from django_reliable_jobs.models import Job

P = ParamSpec("P")
R = TypeVar("R")

_tasks: dict[str, Task[..., Any]] = {}
_finders: list[Callable[[str], Task[..., Any] | None]] = []
_on_demand: set[str] = set()  # names that a finder finds


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Task(Generic[P, R]):
    """A declared function: calling it runs it here and now, `enqueue` makes a job of it."""

    function: Callable[..., R] = field(repr=False)
    name: str = field(repr=False)
    queue_name: str = "default"
    priority: int = 0
    max_attempts: int | None = None  # None: the setting MAX_ATTEMPTS
    retry_policy: RetryPolicy = DEFAULT_POLICY
    timeout: timedelta | None = None
    atomic: bool = False
    unique: UniqueKey = None
    unique_until: Literal["end", "start"] = "end"
    on_duplicate: OnDuplicate = "keep"
    concurrency: Concurrency | None = None
    rate_limit: Rate | None = None
    expires: timedelta | None = None
    on_dead: Task[..., Any] | str | None = None
    alert_after: timedelta | None = None
    sensitive: frozenset[str] = frozenset()
    admin_enqueue: bool = False
    takes_context: bool = False
    aliases: tuple[str, ...] = ()
    signature: inspect.Signature = field(repr=False)
    is_async: bool = field(default=False, init=False, repr=False)
    # Told the claimed job and the outcome of each of its attempts, on the job's thread, before that is recorded.
    on_outcome: Callable[[Any, Any], None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            object.__setattr__(self, attribute, getattr(self.function, attribute))
        object.__setattr__(self, "__wrapped__", self.function)
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.function))

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function itself: no job, no context."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        options = (each for each in fields(self) if each.repr and getattr(self, each.name) != each.default)
        return f"<Task {self.name}{''.join(f' {each.name}={getattr(self, each.name)!r}' for each in options)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: the other process finds its own declaration."""
        return _find_again, (self.__module__, self.name)

    def limits(self) -> dict[tuple[str, str], Concurrency | Rate]:
        """Return the limits that its jobs count for, by kind and name."""
        given = (self.concurrency, self.rate_limit)
        return {(limit.kind, limit.name or self.name): limit for limit in given if limit is not None}

    def using(self, **choices: Unpack[Choices]) -> Placement[P, R]:
        """Return the task with other choices for the jobs enqueued through it; the task itself stays as it is.

        `queue_name`, `priority`, `run_after` (aware datetime, or timedelta from the moment of enqueue), `unique_key`
        (text, in place of the task's `unique`), `database` (alias). Raises InvalidArguments for what can't hold.
        """
        return Placement(task=self).using(**choices)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Make a job of this call, in the caller's transaction: it exists if and only if the caller commits.

        Returns the job; `job.created` is False when `unique` found a live one. Raises InvalidArguments for what a job
        can't carry (nothing is inserted, the transaction stays usable) and DuplicateJob with `on_duplicate="raise"`.
        Arguments are JSON and come back plain: a member of TextChoices or IntegerChoices as its value.
        """
        return self._placement.enqueue(*args, **kwargs)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Do what `enqueue` does, from a coroutine."""
        return await self._placement.aenqueue(*args, **kwargs)

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job]:
        """Make a job of each dict of keyword arguments, in the caller's transaction, in few round trips.

        Returns a job per dict, in the same order; `job.created` is False for one that `unique` found. If one is wrong,
        none is inserted.
        """
        return self._placement.enqueue_many(calls)

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job]:
        """Do what `enqueue_many` does, from a coroutine."""
        return await self._placement.aenqueue_many(calls)

    @cached_property
    def _placement(self) -> Placement[P, R]:
        return Placement(task=self)

    @cached_property
    def accepts(self) -> Callable[[KeysView[str]], bool]:
        """See `arguments.accepts_by_name`."""
        return accepts_by_name(self.signature)


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *, takes_context: Literal[True], **options: Unpack[Options]
) -> Callable[[Callable[Concatenate[JobContext, P], R]], Task[P, R]]: ...
@overload
def task(
    *, takes_context: Literal[False] = False, **options: Unpack[Options]
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Declare a module-level function as a task.

    - `name` is what rows carry (default: module path and name); `aliases` are names of old rows that still run.
    - `queue_name`, `priority` (-100 to 100, higher first) and `expires` (seconds or timedelta: not started so long
      after it was due, a job is cancelled) say when its jobs run.
    - `max_attempts`, `backoff`, `retry_on` and `give_up_on` decide retries; `on_dead` names a task that is enqueued
      with `job_id` in the transaction in which a job dies.
    - `timeout` (seconds or timedelta) ends an attempt that runs longer, as a failure; `atomic` commits the task's
      writes and its success together, fenced: effects exactly once.
    - `unique` names the argument(s), or True for all, or a function of the arguments by name that returns text: one
      live job per key may exist until its `end` or its `start` (`unique_until`). A duplicate that has not started
      is kept, gets the new arguments (replace) or a later due moment (postpone), as `on_duplicate` says; one that
      has started stays as it is; or DuplicateJob is raised. Keys belong to the task's name: a renamed task has new
      ones.
    - `concurrency` is how many of its jobs run at once in the whole fleet, `rate_limit` ("10/s", "600/m", "1000/h") how
      many start; Concurrency and Rate say it per argument, or together with other tasks. What is over a limit waits and
      uses no attempt.
    - `alert_after` (seconds or timedelta): an alert is raised when no job of the task has succeeded for so long;
      `sensitive` names the arguments whose values are shown nowhere; `admin_enqueue` lets who has the permission
      enqueue it by hand in the admin.
    - `takes_context` passes the job's context as the first argument.

    Raises InvalidTask, which names what can't hold and the accepted forms.
    """
    if function is not None:
        return declare(function, **options)
    return lambda decorated: declare(decorated, **options)


def declare(function: Callable[..., R], *, takes_context: bool = False, **options: Unpack[Options]) -> Task[..., R]:
    """Check a declaration, register it and return the Task. `task` is its decorator form."""
    declared = build(function, takes_context=takes_context, **options)
    register(declared)
    return declared


def build(function: Callable[..., R], *, takes_context: bool = False, **options: Unpack[Options]) -> Task[..., R]:
    """Check a declaration and return the Task, not registered: no worker finds it by its name."""
    declaration.refuse_unknown_options(function, options)
    declaration.check_function(function)
    given: Options = {**DEFAULTS, **options}
    name = f"{function.__module__}.{function.__qualname__}" if given["name"] is None else given["name"]
    check = declaration.Declaration(name)
    return Task(
        function=function,
        name=check.name_of_task(name),
        queue_name=check.queue_name(given["queue_name"]),
        priority=check.priority(given["priority"]),
        max_attempts=check.max_attempts(given["max_attempts"]),
        retry_policy=check.retry_policy(given["backoff"], given["retry_on"], given["give_up_on"]),
        signature=(signature := check.signature(function, takes_context)),
        timeout=check.span("timeout", given["timeout"]),
        atomic=check.atomic(given["atomic"], function),
        unique=check.unique(given["unique"], signature),
        unique_until=check.choice("unique_until", given["unique_until"], ("end", "start")),
        on_duplicate=check.choice("on_duplicate", given["on_duplicate"], ("keep", "replace", "postpone", "raise")),
        concurrency=limits.checked_concurrency(name, given["concurrency"], signature),
        rate_limit=limits.checked_rate(name, given["rate_limit"], signature),
        expires=check.span("expires", given["expires"]),
        on_dead=check.on_dead(given["on_dead"]),
        alert_after=check.span("alert_after", given["alert_after"]),
        sensitive=check.sensitive(given["sensitive"], signature),
        admin_enqueue=check.flag("admin_enqueue", given["admin_enqueue"]),
        takes_context=check.flag("takes_context", takes_context),
        aliases=check.aliases(given["aliases"]),
    )


def register(declared: Task[..., Any], *, is_on_demand: bool = False) -> None:
    """Let the task be found by its name and aliases. Raises InvalidTask if another one is.

    `is_on_demand`: a finder would find it too, in a process that knows nothing of it yet.
    """
    for name in (declared.name, *declared.aliases):
        other = _tasks.get(name)
        if other is not None and _place(other) != _place(declared):
            raise InvalidTask(
                f"two tasks claim the name {name!r}: {_place(other)} and {_place(declared)}; give one of them name=…"
            )
    for other in _tasks.values() if declared.limits() else ():
        if _place(other) != _place(declared):
            limits.refuse_contradiction(declared.name, declared.limits(), other.name, other.limits())
    for name in (declared.name, *declared.aliases):
        _tasks[name] = declared
        if is_on_demand:
            _on_demand.add(name)


def _place(declared: Task[..., Any]) -> str:
    return f"{declared.function.__module__}.{declared.function.__qualname__}"


def _find_again(module: str, name: str) -> Task[..., Any]:
    importlib.import_module(module)
    return get(name)


def withdraw(name: str) -> None:
    """Let no task be found under this name, unless a finder finds it again."""
    _tasks.pop(name, None)
    _on_demand.discard(name)


def add_finder(finder: Callable[[str], Task[..., Any] | None]) -> None:
    """Ask `finder` for the task of a name that is not registered. It must not raise."""
    _finders.append(finder)


def find(name: str) -> Task[..., Any] | None:
    """Return the task declared under this name or alias, or None."""
    declared = _tasks.get(name)
    if declared is None and _finders:
        declared = next((found for finder in _finders if (found := finder(name)) is not None), None)
    return declared


def is_found_on_demand(name: str) -> bool:
    """Return whether a worker may find this task though it did not know it at its start."""
    return find(name) is not None and name in _on_demand


def get(name: str) -> Task[..., Any]:
    """Return the task declared under this name or alias. Raises UnknownTask, which suggests the nearest name."""
    declared = find(name)
    if declared is None:
        near = _nearest(name)
        hint = f"did you mean {near!r}?" if near else "is its module among the `tasks` modules or TASK_MODULES?"
        raise UnknownTask(f"no task is declared under the name {name!r}: {hint}")
    return declared


def _nearest(name: str) -> str | None:
    """Return the task that may have been meant: one with this name's end, with a near name, with a near end."""
    by_end = {each.rpartition(".")[2]: each for each in _tasks}
    end = name.rpartition(".")[2]
    near = [by_end[end]] if end in by_end else get_close_matches(name, _tasks, n=1)
    near = near or [by_end[each] for each in get_close_matches(end, by_end, n=1)]
    return _tasks[near[0]].name if near else None


def all_tasks() -> list[Task[..., Any]]:
    """Return every declared task once, by name."""
    return [declared for name, declared in sorted(_tasks.items()) if name == declared.name]


def known_names() -> list[str]:
    """Return every name under which a row's task is found here, aliases among them."""
    return sorted(_tasks)


def declared_limits() -> dict[tuple[str, str], Concurrency | Rate]:
    """Return what the declared tasks say of each limit, by its kind and name."""
    return {place: limit for declared in all_tasks() for place, limit in declared.limits().items()}
