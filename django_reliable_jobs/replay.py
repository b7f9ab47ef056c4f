"""The steps that code asks for, held against those that the history of the job has. No database.

A replay runs the task from its first line. Each step, sleep or wait that it asks for is the next of the history, or,
behind the end of the history, a new one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any, NamedTuple

from django_reliable_jobs.exceptions import HistoryMismatch, InvalidStep

LONGEST_NAME = 255

WAY_OUT = (
    "Steps were renamed, removed, or put before others while this job was under way. Deploy code that asks for the same"
    " steps in the same order, and the job goes on; a flow that changes needs a new task name, beside the old one until"
    " its jobs have ended. See the page 'Living with code changes'."
)


class Stored(NamedTuple):
    """One step, sleep or wait of the history."""

    name: str
    kind: str
    state: str
    value: str  # JSON
    function: str | None
    tries: int | None
    error: str | None
    until: datetime | None
    is_over: bool  # `until` is past


class Asked(NamedTuple):
    """What the code asks for: under the name that the history has it by, and what is stored of it, if anything."""

    name: str
    stored: Stored | None


class Replay:
    """One run of the code against the history."""

    def __init__(self, job: str, stored: Sequence[Stored]) -> None:
        self._job = job
        self._stored = stored
        self._asked = 0
        self._names: dict[str, int] = {}  # by name: how often it was used
        self._functions: dict[str, tuple[str, str | None]] = {}

    @property
    def leftover(self) -> list[str]:
        """The names of the history that the code has not asked for."""
        return [each.name for each in self._stored[self._asked :]]

    def ask(self, name: str, kind: str, function: str | None = None) -> Asked:
        """Return what the history has of the next step, sleep or wait.

        Raises InvalidStep for a name that can't be, HistoryMismatch if the history goes on otherwise.
        """
        self._check_name(name, kind, function)
        numbered = self._numbered(name)
        if self._asked >= len(self._stored):
            return Asked(numbered, None)
        stored = self._stored[self._asked]
        wanted, had = _called(kind, numbered), _called(stored.kind, stored.name)
        if wanted != had:
            raise HistoryMismatch(f"{self._job}: {had} is number {self._asked + 1} of its history, and the code asks"
                                  f" for {wanted}. {WAY_OUT}")  # fmt: skip
        if _short(stored.function) != _short(function):
            raise HistoryMismatch(f"{self._job}: {had} of its history called {_short(stored.function)}, and the code"
                                  f" has it call {_short(function)}. {WAY_OUT}")  # fmt: skip
        self._asked += 1
        return Asked(numbered, stored)

    def _check_name(self, name: str, kind: str, function: str | None) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME - 10 or not name.isprintable():
            raise InvalidStep(
                f"a {kind} is named by text of 1 to {LONGEST_NAME - 10} printable characters, not {name!r:.80}"
            )
        used = self._functions.setdefault(name, (kind, function))
        if used != (kind, function):
            before = used[1] or f"a {used[0]}"
            raise InvalidStep(f"the name {name!r} was used for {before} before, and now for {function or f'a {kind}'}:"
                              " each step has a name of its own")  # fmt: skip

    def _numbered(self, name: str) -> str:
        if name not in self._names:
            self._names[name] = 1
            return name
        number = self._names[name] + 1
        while (numbered := f"{name} #{number}") in self._names:
            number += 1
        self._names[name], self._names[numbered] = number, 1
        return numbered


def name_of(function: object) -> str:
    """Return what a function is known by in the history."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"[-LONGEST_NAME:]


def find_function(module_name: str, name: str) -> Callable[..., Any] | None:
    """Return the function of that name if a module has it, or one that it imports as a whole; imports nothing."""
    wanted, _, path = name.partition(":")
    module = sys.modules.get(module_name)
    if module is None:
        return None
    others = (each for each in vars(module).values() if isinstance(each, ModuleType) and each.__name__ == wanted)
    for place in (module, *others):
        found: Any = place
        for part in path.split("."):
            found = getattr(found, part, None)
        if callable(found) and name_of(found) == name:
            return found  # type: ignore[no-any-return]
    return None


def _called(kind: str, name: str) -> str:
    return f"the {'wait for the event' if kind == 'event' else kind} {name!r}"


def _short(function: str | None) -> str | None:
    # A function that moved to another module is the same.
    return function and function.rpartition(":")[2]
