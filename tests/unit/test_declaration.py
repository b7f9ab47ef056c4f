"""What `@task` accepts, and what it says about the rest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import pytest

from django_reliable_jobs import exponential, registry, task
from django_reliable_jobs.exceptions import InvalidArguments, InvalidTask, ReliableJobsError
from django_reliable_jobs.task_options import DEFAULTS, Options


def charge(order_id: int, kind: str = "full") -> None:
    pass


def plain() -> None:
    pass


def with_context(context: Any, order_id: int) -> None:
    pass


def only_keywords(*, order_id: int) -> None:
    pass


def collects(*args: Any, **kwargs: Any) -> None:
    pass


def with_odd_default(order_id: int, at: date = date(2030, 1, 1), ids: tuple[int, ...] = (1,)) -> None:
    pass


def bury(job_id: int) -> None:
    pass


def generates() -> Iterator[int]:
    yield 1


async def generates_asynchronously() -> Any:
    yield 1


async def asynchronous(order_id: int) -> int:
    return order_id


class Service:
    def charge(self, order_id: int) -> None:
        pass

    def __call__(self, order_id: int) -> None:
        pass


anonymous = lambda order_id: None  # noqa: E731


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", {})


def refusal(function: Any, **options: Any) -> str:
    with pytest.raises(InvalidTask) as caught:
        task(**options)(function)
    assert registry.all_tasks() == [], "a refused declaration is not registered"
    return str(caught.value)


REFUSED_OPTIONS = [
    ("name", ["", 1, "a\nb", "x" * 256, ("a",)], "a name must be text of 1 to 255 printable characters"),
    ("aliases", ["old.name", {"old"}, 1], "aliases must be a list or tuple of names"),
    ("aliases", [[""], ["a\n"], [None]], "a name must be text of 1 to 255 printable characters"),
    ("queue_name", ["", None, 1, "a b", "a,b", "a=b", "a\n", "x" * 65], "queue_name must be text of 1 to 64 printable"),
    ("priority", [101, -101, True, 1.0, "1", None], "priority must be a whole number from -100 to 100, higher first"),
    ("max_attempts", [0, -1, True, 1.0, "1", 32_768], "max_attempts must be a whole number from 1 to 32767"),
    ("backoff", [60, "60", None], "backoff must be exponential(…) or a function of (attempt, exception)"),
    ("backoff", [lambda: 1, lambda attempt: 1, lambda a, b, c: 1], "a function that takes (attempt, exception)"),
    (
        "retry_on",
        [None, "OSError", OSError(), (OSError, 1), {OSError}],
        "retry_on must be an exception class or a tuple",
    ),
    ("give_up_on", [1, (ValueError, "x")], "give_up_on must be an exception class or a tuple of them"),
    ("unique", [1, (), [1], {"order_id"}, ""], "unique"),
    ("unique", ["ordr_id", ("order_id", "x")], "but the arguments are: order_id, kind"),
    ("unique", [lambda: "x", lambda order_id: "x"], "a function that takes the arguments by name (order_id, kind)"),
    ("unique_until", [None, "never", True], "unique_until must be one of 'end', 'start'"),
    ("on_duplicate", [None, "ignore"], "on_duplicate must be one of 'keep', 'replace', 'postpone', 'raise'"),
    ("alert_after", [0, -1, "x", True], "alert_after must be a number of seconds"),
    ("sensitive", [1, [1], None], "sensitive must be the name(s) of arguments"),
    ("sensitive", ["price", ["price"]], "sensitive names the argument 'price', but the arguments are: order_id"),
    (
        "expires",
        [0, -1, "60", True, timedelta(0), timedelta(-1), float("nan"), 4e9],
        "expires must be a number of seconds",
    ),
    ("timeout", [0, -1, "60", True, timedelta(0)], "timeout must be a number of seconds or a timedelta, more than 0"),
    ("atomic", [1, None, "yes"], "atomic must be True or False"),
    ("concurrency", ["3", 1.5], "concurrency must be a whole number from 1"),
    ("rate_limit", [10, ("10/s",)], "rate_limit must be starts in a second, a minute or an hour"),
    ("on_dead", [1, charge, lambda job_id: None], "on_dead must be a task or the name of one"),
    ("admin_enqueue", [1, None, "yes"], "admin_enqueue must be True or False"),
    ("takes_context", [1, None, "yes"], "takes_context must be True or False"),
]


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [(option, value, wanted) for option, values, wanted in REFUSED_OPTIONS for value in values],
    ids=lambda each: repr(each).partition(" at 0x")[0][:30],
)
def test_it_refuses_an_option_that_can_not_hold_and_says_what_can(option: str, value: Any, wanted: str) -> None:
    message = refusal(charge, **{option: value})
    assert wanted in message
    assert "charge" in message or option == "name", "the message names the task"


def test_each_option_is_refused_in_one_of_these_tests() -> None:
    assert {option for option, _, _ in REFUSED_OPTIONS} == {*DEFAULTS, "takes_context"}


ACCEPTED_OPTIONS: list[tuple[str, Any, str, Any]] = [
    ("name", "shop.charge", "name", "shop.charge"),
    ("name", None, "name", "tests.unit.test_declaration.charge"),
    ("aliases", ["old.charge"], "aliases", ("old.charge",)),
    ("queue_name", "crm-fast.1", "queue_name", "crm-fast.1"),
    ("priority", -100, "priority", -100),
    ("priority", 100, "priority", 100),
    ("max_attempts", 1, "max_attempts", 1),
    ("max_attempts", None, "max_attempts", None),
    ("unique", "order_id", "unique", ("order_id",)),
    ("unique", ["order_id", "kind"], "unique", ("order_id", "kind")),
    ("unique", True, "unique", ("order_id", "kind")),
    ("unique", False, "unique", None),
    ("unique", None, "unique", None),
    ("unique_until", "start", "unique_until", "start"),
    ("on_duplicate", "replace", "on_duplicate", "replace"),
    ("expires", 60, "expires", timedelta(minutes=1)),
    ("expires", 0.5, "expires", timedelta(milliseconds=500)),
    ("expires", timedelta(days=1), "expires", timedelta(days=1)),
    ("expires", None, "expires", None),
    ("alert_after", 60, "alert_after", timedelta(minutes=1)),
    ("alert_after", timedelta(days=1), "alert_after", timedelta(days=1)),
    ("sensitive", "order_id", "sensitive", frozenset({"order_id"})),
    ("sensitive", ["order_id"], "sensitive", frozenset({"order_id"})),
    ("timeout", 60, "timeout", timedelta(minutes=1)),
    ("timeout", None, "timeout", None),
    ("atomic", True, "atomic", True),
    ("admin_enqueue", True, "admin_enqueue", True),
    ("on_dead", "shop.bury", "on_dead", "shop.bury"),
    ("on_dead", None, "on_dead", None),
]


@pytest.mark.parametrize(("option", "value", "attribute", "stored"), ACCEPTED_OPTIONS)
def test_it_accepts_each_form_of_an_option(option: str, value: Any, attribute: str, stored: Any) -> None:
    declared = task(**{option: value})(charge)
    assert getattr(declared, attribute) == stored


@pytest.mark.parametrize("value", [OSError, (OSError, KeyError), [OSError], ()])
def test_it_accepts_one_exception_class_or_several(value: Any) -> None:
    policy = task(retry_on=value, give_up_on=value)(charge).retry_policy
    assert policy.retry_on == policy.give_up_on == (tuple(value) if isinstance(value, tuple | list) else (value,))


@pytest.mark.parametrize(
    "backoff", [exponential(first=2), lambda attempt, exception: None, lambda *args: 1, Service.charge, divmod]
)
def test_it_accepts_a_backoff_that_can_be_called_with_attempt_and_exception(backoff: Any) -> None:
    assert task(backoff=backoff)(charge).retry_policy.backoff is backoff


def test_what_was_not_said_has_its_default() -> None:
    assert set(DEFAULTS) == set(Options.__annotations__)
    bare, called = task(charge), task()(plain)
    for declared in (bare, called):
        assert (declared.queue_name, declared.priority, declared.max_attempts) == ("default", 0, None)
        assert (declared.retry_policy.retry_on, declared.retry_policy.give_up_on) == ((Exception,), ())
        assert declared.retry_policy.backoff == exponential(first=1, factor=2, maximum=3600, jitter=0.25)
        assert (declared.unique, declared.unique_until, declared.on_duplicate) == (None, "end", "keep")
        assert (declared.expires, declared.on_dead, declared.takes_context) == (None, None, False)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("queue", "did you mean 'queue_name'?"),
        ("max_attempt", "did you mean 'max_attempts'?"),
        ("take_context", "did you mean 'takes_context'?"),
        ("zzz", "the options are name, aliases, queue_name"),
    ],
)
def test_it_suggests_the_option_that_was_meant(option: str, hint: str) -> None:
    message = refusal(charge, **{option: 1})
    assert message.startswith(f"charge: @task has no option {option!r}: ")
    assert hint in message


def local() -> Callable[..., Any]:
    def inner() -> None:
        pass

    return inner


def wrapped_carelessly(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def wrapped_with_care(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(wrapped_carelessly(function))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (local(), "is defined inside a function: move it to module level"),
        (wrapped_carelessly(charge), "a decorator below @task needs functools.wraps"),
        (anonymous, "is a lambda: write a function at module level"),
        (generates, "is a generator: calling it would run nothing"),
        (generates_asynchronously, "is a generator: calling it would run nothing"),
        (Service, "stands above a module-level function, not above <class"),
        (Service.charge, "is defined inside a class: move it to module level"),
        (Service().charge, "stands above a module-level function, not above <bound method"),
        (Service(), "stands above a module-level function, not above <tests"),
        (functools.partial(charge, 1), "stands above a module-level function, not above functools.partial"),
        (len, "stands above a module-level function, not above <built-in"),
        ("billing.charge", "stands above a module-level function, not above 'billing.charge'"),
    ],
)
def test_it_refuses_what_is_not_a_module_level_function(function: Any, reason: str) -> None:
    assert reason in refusal(function)


def test_it_refuses_to_make_a_task_of_a_task() -> None:
    declared = task()(charge)
    with pytest.raises(InvalidTask, match=r"charge is a task already: use @task once"):
        task()(declared)  # type: ignore[arg-type]


def test_coroutine_functions_and_careful_wrappers_are_functions() -> None:
    assert task()(asynchronous).name == "tests.unit.test_declaration.asynchronous"
    assert list(task()(wrapped_with_care(charge)).signature.parameters) == ["order_id", "kind"]


def test_the_context_is_not_one_of_the_arguments() -> None:
    assert list(task(takes_context=True, unique=True)(with_context).signature.parameters) == ["order_id"]


@pytest.mark.parametrize("function", [plain, only_keywords, collects])
def test_a_task_that_takes_a_context_needs_a_first_parameter_for_it(function: Any) -> None:
    assert "takes_context=True needs a first parameter for the context" in refusal(function, takes_context=True)


def test_unique_refuses_an_argument_whose_default_can_not_be_part_of_a_key() -> None:
    for rule in (True, "at", ["order_id", "at"]):
        message = refusal(with_odd_default, unique=rule)
        assert "unique takes in the argument 'at', whose default datetime.date(2030, 1, 1) is not JSON" in message
    assert task(unique=("order_id", "ids"))(with_odd_default).unique == ("order_id", "ids")


def test_a_unique_task_without_arguments_has_one_key() -> None:
    assert task(unique=True)(plain).unique == ()


def test_a_unique_function_of_a_task_that_collects_arguments_is_left_to_the_call() -> None:
    def key(**kwargs: Any) -> str:
        return "x"

    assert task(unique=key)(collects).unique is key


def test_on_dead_names_a_task_that_takes_a_job_id() -> None:
    buried = task()(bury)
    assert task(on_dead=buried)(charge).on_dead is buried
    wrong = task()(only_keywords)
    with pytest.raises(InvalidTask, match=r"on_dead=.*only_keywords must accept the one argument job_id"):
        task(on_dead=wrong)(plain)


def test_refusals_can_be_caught_as_type_errors_and_as_errors_of_the_package() -> None:
    for kind in (InvalidTask, InvalidArguments):
        assert issubclass(kind, TypeError)
        assert issubclass(kind, ReliableJobsError)
