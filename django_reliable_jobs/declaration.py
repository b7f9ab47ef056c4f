"""What a declaration may say: each check returns the value in its stored form or raises, naming the way out."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django_reliable_jobs.exceptions import InvalidArguments, InvalidTask
from django_reliable_jobs.retry import LONGEST_SPAN, RetryPolicy, as_seconds
from django_reliable_jobs.spelling import right_word
from django_reliable_jobs.task_options import DEFAULTS, Choices, UniqueKey

MAX_NAME = 255
MAX_QUEUE_NAME = 64

T = TypeVar("T")


def check_function(function: Any) -> None:
    """Raise InvalidTask for what can't be found again by another process or can't be called as a task."""
    if hasattr(function, "retry_policy"):
        raise InvalidTask(f"{function.name} is a task already: use @task once")
    if not inspect.isfunction(function):
        raise InvalidTask(f"@task stands above a module-level function, not above {function!r}")
    place = f"{function.__module__}.{function.__qualname__}"
    if function.__name__ == "<lambda>":
        raise InvalidTask(f"{place} is a lambda: write a function at module level, where a worker can find it")
    if "<" in function.__qualname__:
        raise InvalidTask(
            f"{place} is defined inside a function: move it to module level, where a worker can find it (a decorator"
            " below @task needs functools.wraps)"
        )
    if "." in function.__qualname__:
        raise InvalidTask(f"{place} is defined inside a class: move it to module level and pass it what it needs")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTask(f"{place} is a generator: calling it would run nothing; return a list, or loop inside")


def refuse_unknown_options(function: Any, given: Iterable[str]) -> None:
    """Raise InvalidTask for an option that @task does not have, with the nearest one that it has."""
    known = [*DEFAULTS, "takes_context"]
    for name in given:
        if name not in known:
            meant = right_word(name, known)
            hint = f"did you mean {meant!r}?" if meant else f"the options are {', '.join(known)}"
            raise InvalidTask(f"{getattr(function, '__qualname__', function)}: @task has no option {name!r}: {hint}")


def check_choices(task: str, choices: Choices) -> None:
    """Raise InvalidArguments for a choice of `Task.using()` that does not exist or can't hold."""
    for name in choices:
        if name not in Choices.__annotations__:
            meant = right_word(name, known := list(Choices.__annotations__))
            hint = f"did you mean {meant!r}? " if meant else ""
            raise InvalidArguments(f"{task}: using() has no choice {name!r}: {hint}the choices are {', '.join(known)}")
    check = Declaration(task, error=InvalidArguments)
    if choices.get("queue_name") is not None:
        check.queue_name(choices["queue_name"])
    if choices.get("priority") is not None:
        check.priority(choices["priority"])
    if choices.get("run_after") is not None:
        _check_run_after(task, choices["run_after"])
    unique_key: Any = choices.get("unique_key")
    if unique_key is not None and (not isinstance(unique_key, str) or not unique_key):
        raise check.refuse("unique_key", unique_key, "text")


def _check_run_after(task: str, run_after: Any) -> None:
    if isinstance(run_after, timedelta):
        if run_after < timedelta():
            raise InvalidArguments(f"{task}: run_after={run_after!r} lies in the past; leave it out to run now")
        if run_after > timedelta(seconds=LONGEST_SPAN):
            raise InvalidArguments(f"{task}: run_after={run_after!r} is more than 100 years ahead")
    elif not isinstance(run_after, datetime):
        raise InvalidArguments(f"{task}: run_after must be an aware datetime or a timedelta, not {run_after!r}")
    elif run_after.utcoffset() is None:
        raise InvalidArguments(
            f"{task}: run_after={run_after!r} has no time zone; use django.utils.timezone.make_aware()"
        )
    elif not 1970 <= run_after.year <= 9000:  # far from what PostgreSQL or Python can't hold, whatever is added
        raise InvalidArguments(f"{task}: run_after={run_after!r} is not between the years 1970 and 9000")


class Declaration:
    """The checks of one declaration; `task` names it in messages."""

    def __init__(self, task: str, *, error: type[Exception] = InvalidTask) -> None:
        self.task = task
        self._error = error

    def refuse(self, option: str, value: Any, wanted: str) -> Exception:
        """Return the error for an option that is not `wanted`."""
        return self._error(f"{self.task}: {option} must be {wanted}, not {value!r}")

    def name_of_task(self, value: Any) -> str:
        if not isinstance(value, str) or not value or len(value) > MAX_NAME or not value.isprintable():
            raise self.refuse("a name", value, f"text of 1 to {MAX_NAME} printable characters")
        return value

    def aliases(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.refuse("aliases", value, "a list or tuple of names")
        return tuple(self.name_of_task(each) for each in value)

    def queue_name(self, value: Any) -> str:
        right = isinstance(value, str) and 0 < len(value) <= MAX_QUEUE_NAME and value.isprintable()
        if not right or any(character in value for character in ",= *"):
            raise self.refuse(
                "queue_name",
                value,
                f"text of 1 to {MAX_QUEUE_NAME} printable characters without spaces, commas, = or *",
            )
        return str(value)

    def priority(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not -100 <= value <= 100:
            raise self.refuse("priority", value, "a whole number from -100 to 100, higher first")
        return value

    def max_attempts(self, value: Any) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 32_767:
            raise self.refuse("max_attempts", value, "a whole number from 1 to 32767 (1: never tried again)")
        return value

    def retry_policy(self, backoff: Any, retry_on: Any, give_up_on: Any) -> RetryPolicy:
        return RetryPolicy(
            backoff=self.backoff(backoff),
            retry_on=self.exception_classes("retry_on", retry_on),
            give_up_on=self.exception_classes("give_up_on", give_up_on),
        )

    def backoff(self, value: Any) -> Any:
        if not callable(value):
            raise self.refuse("backoff", value, "exponential(…) or a function of (attempt, exception)")
        if not _accepts(value, 1, ValueError()):
            raise self.refuse("backoff", value, "a function that takes (attempt, exception)")
        return value

    def exception_classes(self, option: str, value: Any) -> tuple[type[BaseException], ...]:
        classes = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        if not all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
            raise self.refuse(option, value, "an exception class or a tuple of them")
        return classes

    def signature(self, function: Callable[..., Any], takes_context: bool) -> inspect.Signature:
        signature = inspect.signature(function)
        if not takes_context:
            return signature
        parameters = list(signature.parameters.values())
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or parameters[0].kind not in positional:
            raise self._error(f"{self.task}: takes_context=True needs a first parameter for the context")
        return signature.replace(parameters=parameters[1:])

    def unique(self, value: Any, signature: inspect.Signature) -> UniqueKey:
        if value is None or value is False:
            return None
        if callable(value):
            return self._unique_function(value, signature)
        names = (value,) if isinstance(value, str) else list(signature.parameters) if value is True else value
        right = isinstance(names, Sequence) and all(isinstance(each, str) for each in names)
        if not right or (not names and value is not True):
            raise self.refuse("unique", value, "argument name(s), True for all, or a function that returns text")
        for name in names:
            if name not in signature.parameters:
                known = ", ".join(signature.parameters) or "none"
                raise self._error(f"{self.task}: unique names the argument {name!r}, but the arguments are: {known}")
            self._check_default_in_key(signature.parameters[name])
        return tuple(names)

    def _unique_function(self, value: Callable[..., str], signature: inspect.Signature) -> Callable[..., str]:
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names = [name for name, each in signature.parameters.items() if each.kind not in variable]
        if len(names) == len(signature.parameters) and not _accepts(value, **dict.fromkeys(names)):
            raise self.refuse("unique", value, f"a function that takes the arguments by name ({', '.join(names)})")
        return value

    def _check_default_in_key(self, parameter: inspect.Parameter) -> None:
        if parameter.default is inspect.Parameter.empty:
            return
        try:
            json.dumps(parameter.default)
        except (TypeError, ValueError):
            raise self._error(
                f"{self.task}: unique takes in the argument {parameter.name!r}, whose default {parameter.default!r} is"
                " not JSON: give it another default, or name the arguments that make the key"
            ) from None

    def choice(self, option: str, value: T, choices: Sequence[str]) -> T:
        if value not in choices:
            raise self.refuse(option, value, f"one of {', '.join(map(repr, choices))}")
        return value

    def span(self, option: str, value: Any) -> timedelta | None:
        try:
            seconds = as_seconds(value)
        except (TypeError, ValueError):
            seconds = 0
        if seconds == 0:
            raise self.refuse(option, value, "a number of seconds or a timedelta, more than 0")
        return None if seconds is None else timedelta(seconds=seconds)

    def on_dead(self, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        if not hasattr(value, "retry_policy"):
            raise self.refuse("on_dead", value, "a task or the name of one")
        try:
            value.signature.bind(job_id=1)
        except TypeError:
            raise self._error(f"{self.task}: on_dead={value.name} must accept the one argument job_id") from None
        return value

    def sensitive(self, value: Any, signature: inspect.Signature) -> frozenset[str]:
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, Sequence) or not all(isinstance(each, str) for each in names):
            raise self.refuse("sensitive", value, "the name(s) of arguments whose values are not shown")
        takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
        for name in names:
            if name not in signature.parameters and not takes_any:
                known = ", ".join(signature.parameters) or "none"
                raise self._error(f"{self.task}: sensitive names the argument {name!r}, but the arguments are: {known}")
        return frozenset(names)

    def flag(self, option: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(option, value, "True or False")
        return value

    def atomic(self, value: Any, function: Callable[..., Any]) -> bool:
        if self.flag("atomic", value) and inspect.iscoroutinefunction(function):
            raise self._error(
                f"{self.task}: atomic=True can't hold for an async function: Django's transactions belong to one"
                " thread. Make it a plain function, or call context.fenced() around the writes"
            )
        return bool(value)


def _accepts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Return whether a function can be called like this, as far as it tells."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # a function written in C that does not tell
        return True
    return True
