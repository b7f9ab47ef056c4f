"""Wrong words in a declaration: answered by the error of declarations, with the right word, not by a bare TypeError."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def spelt(name: str, example: str, error: type[Exception]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function called with other arguments than it takes raise `error`, which tells of them and the `example`.

    A call that is right costs nothing but the call.
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError:
                if fault := _fault(name, inspect.signature(function), args, kwargs):
                    raise error(f"{fault}; for example {example}") from None
                raise

        return called

    return declare


def spelt_class(example: str, error: type[Exception]) -> Callable[[C], C]:
    """Have a class that is called with other arguments than its `__init__` takes raise `error`, as `spelt` does."""

    def declare(declared: C) -> C:
        init = declared.__dict__["__init__"]
        declared.__init__ = spelt(declared.__name__, example, error)(init)  # type: ignore[misc]
        return declared

    return declare


def right_word(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that was meant: nearly the same, or the one that it can stand for (tz: timezone)."""
    close = get_close_matches(word.lower(), known, n=1)
    short_for = [each for each in known if len(word) > 1 and _is_short_for(word.lower(), each)]
    return close[0] if close else short_for[0] if len(short_for) == 1 else None


def _is_short_for(word: str, known: str) -> bool:
    letters = iter(known)
    return word[0] == known[0] and all(each in letters for each in word)


def _fault(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the arguments of a call; None: they fit."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mistake:
        parameters = [each for each in signature.parameters.values() if each.name != "self"]
        known = [each.name for each in parameters]
        listed = f"it takes {', '.join(known)}"
        for word in kwargs:
            if word not in known:
                meant = right_word(word, known)
                hint = f"did you mean {meant!r}? " if meant else ""
                return f"{name}() has no argument {word!r}: {hint}{listed}"
        in_place = [each for each in parameters if each.kind is not Parameter.KEYWORD_ONLY]
        if len(args) - ("self" in signature.parameters) > len(in_place):
            by_place = f"only {', '.join(each.name for each in in_place)}" if in_place else "nothing"
            return f"{name}() takes {by_place} without a name: {listed}"
        return f"{name}(): {mistake}: {listed}"
    return None
