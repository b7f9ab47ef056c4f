"""What a task may say about limits, what the keys of its jobs are, and what is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from django_reliable_jobs import Concurrency, Rate, registry, task
from django_reliable_jobs.exceptions import InvalidTask
from django_reliable_jobs.limits import as_text, read_rate


def send(customer_id: int, region: str = "eu") -> None:
    pass


def receive(customer_id: int) -> None:
    pass


def with_odd_default(at: date = date(2030, 1, 1)) -> None:
    pass


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", {})


def message_of(declare: Callable[[], Any]) -> str:
    with pytest.raises(InvalidTask) as caught:
        declare()
    return str(caught.value)


def test_a_number_is_a_concurrency_and_a_text_is_a_rate() -> None:
    declared = task(concurrency=3, rate_limit="600/m")(send)
    assert declared.concurrency == Concurrency(3)
    assert declared.rate_limit == Rate("600/m")
    assert (declared.rate_limit.allowed, declared.rate_limit.period) == (600, 60)


def test_without_limits_a_task_has_none() -> None:
    declared = task()(send)
    assert (declared.concurrency, declared.rate_limit, declared.limits()) == (None, None, {})


@pytest.mark.parametrize(
    ("rate", "burst"), [("10/s", 10), ("600/m", 10), ("90/m", 1), ("1000/h", 1), ("7200/h", 2), ("1/s", 1), ("1/h", 1)]
)
def test_the_usual_burst_is_one_seconds_worth_and_at_least_one(rate: str, burst: int) -> None:
    assert Rate(rate).burst == burst
    assert str(Rate(rate)) == rate


def test_a_given_burst_is_shown() -> None:
    assert Rate("600/m", burst=20).burst == 20
    assert str(Rate("600/m", burst=20)) == as_text(600, 60, 20) == "600/m, burst 20"
    assert read_rate("600/m") == (600, 60)


def test_values_can_be_compared_copied_and_pickled() -> None:
    for value in (Concurrency(3, per="customer_id", name="crm"), Rate("10/s", burst=2)):
        assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value
        assert len({value, copy.copy(value)}) == 1
    assert Concurrency(3) != Concurrency(4)


RATE_FORMS = ['"10/s"', '"600/m"', '"1000/h"', "Rate("]


@pytest.mark.parametrize(
    "rate",
    ["10 per second", "0/s", "-1/s", "10/d", "10", "/s", "1.5/s", "10 / s", "10/s ", "", "2000000/s", "\u0661/s"],
)
def test_a_bad_rate_is_refused_with_the_accepted_forms(rate: str) -> None:
    for declare in (lambda: task(rate_limit=rate)(send), lambda: Rate(rate)):
        message = message_of(declare)
        assert repr(rate) in message
        assert all(form in message for form in RATE_FORMS)


@pytest.mark.parametrize("rate", [10, 1.5, True, b"10/s", Concurrency(1), ["10/s"]])
def test_what_is_no_rate_is_refused_with_the_accepted_forms(rate: Any) -> None:
    message = message_of(lambda: task(rate_limit=rate)(send))
    assert "rate_limit must be" in message
    assert all(form in message for form in RATE_FORMS)


@pytest.mark.parametrize("concurrency", [0, -1, 1_000_001, True, "3", 2.0, Rate("10/s"), (1,)])
def test_a_bad_concurrency_is_refused_with_the_accepted_forms(concurrency: Any) -> None:
    message = message_of(lambda: task(concurrency=concurrency)(send))
    assert "concurrency must be a whole number from 1, or Concurrency(" in message
    if not isinstance(concurrency, Rate):
        assert "concurrency must be" in message_of(lambda: Concurrency(concurrency))


@pytest.mark.parametrize("burst", [0, -1, 1.5, True, "2"])
def test_a_bad_burst_is_refused(burst: Any) -> None:
    assert repr(burst) in message_of(lambda: Rate("10/s", burst=burst))


def test_a_misspelt_argument_is_answered_with_those_that_there_are() -> None:
    assert "allowed, per, name" in message_of(lambda: Concurrency(1, pre="customer_id"))  # type: ignore[call-arg]
    message = message_of(lambda: Rate("1/s", bursts=2))  # type: ignore[call-arg]
    assert "did you mean 'burst'? it takes rate, per, name, burst" in message
    assert "only rate without a name" in message_of(lambda: Rate("1/s", 2))  # type: ignore[misc]


def test_an_argument_that_the_task_does_not_have_is_refused_with_those_that_it_has() -> None:
    message = message_of(lambda: task(concurrency=Concurrency(1, per="customer"))(send))
    assert "'customer'" in message and "customer_id, region" in message
    assert "rate_limit" in message_of(lambda: task(rate_limit=Rate("1/s", per=["customer_id", "x"]))(send))


@pytest.mark.parametrize("per", [1, "", ["customer_id", 2], {"a": 1}, [""]])
def test_what_is_no_name_of_an_argument_is_refused(per: Any) -> None:
    assert "per=…" in message_of(lambda: Concurrency(1, per=per))


def test_an_argument_whose_default_is_not_json_is_refused() -> None:
    assert "not JSON" in message_of(lambda: task(concurrency=Concurrency(1, per="at"))(with_odd_default))


@pytest.mark.parametrize("name", ["", "a:b", "line\nbreak", "x" * 101, "ü" * 51, 7])
def test_a_name_that_no_limit_can_have_is_refused(name: Any) -> None:
    assert "name=…" in message_of(lambda: Rate("1/s", name=name))


@pytest.mark.parametrize("name", ["shop:send", "x" * 101])
def test_a_task_whose_name_no_limit_can_have_must_name_its_limit(name: str) -> None:
    assert "give the limit one" in message_of(lambda: task(name=name, concurrency=1)(send))
    assert task(name=name, concurrency=Concurrency(1, name="send"))(send).limits() == {
        ("concurrency", "send"): Concurrency(1, name="send")
    }


def test_tasks_that_share_a_limit_must_agree_on_it() -> None:
    task(concurrency=Concurrency(5, name="crm"), rate_limit=Rate("10/s", name="crm"))(send)
    task(concurrency=Concurrency(5, name="crm", per="customer_id"))(receive)
    message = message_of(lambda: task(concurrency=Concurrency(4, name="crm"))(receive))
    assert "'crm'" in message and "as 4" in message and "as 5" in message
    assert "burst 2" in message_of(lambda: task(rate_limit=Rate("10/s", name="crm", burst=2))(receive))


def test_a_task_may_be_declared_again_with_another_limit() -> None:
    task(concurrency=5)(send)
    task(concurrency=4)(send)
    assert str(registry.declared_limits()["concurrency", f"{__name__}.send"]) == "4"


def test_the_key_is_the_name_or_that_of_the_task() -> None:
    assert Concurrency(1).key("tests.send", {"customer_id": 42}) == "tests.send"
    assert Rate("1/s", name="crm").key("tests.send", {"customer_id": 42}) == "crm"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "crm:customer_id=42"),
        ("42", "crm:customer_id=42"),  # ids arrive as both
        ("acme", "crm:customer_id=acme"),
        (None, "crm:customer_id=null"),
        (True, "crm:customer_id=true"),
        ({"b": 1, "a": "ü"}, 'crm:customer_id={"a": "ü", "b": 1}'),
        ("a\nb", "crm:customer_id=a\\nb"),
    ],
)
def test_the_key_per_argument_is_readable(value: Any, text: str) -> None:
    assert Concurrency(1, name="crm", per="customer_id").key("tests.send", {"customer_id": value}) == text


def test_a_key_may_be_per_several_arguments() -> None:
    limit = Rate("1/s", per=["customer_id", "region"])
    assert limit.key("t", {"customer_id": 1, "region": "eu"}) == "t:customer_id=1,region=eu"


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600"])
def test_the_end_of_a_long_key_is_replaced_by_a_hash(letter: str) -> None:
    limit = Concurrency(1, name="crm", per="customer_id")
    keys = {limit.key("t", {"customer_id": letter * 1000 + end}) for end in "ab"}
    assert len(keys) == 2
    for key in keys:
        assert 160 < len(key.encode()) <= 200
        assert key.startswith(f"crm:customer_id={letter}{letter}")
    assert limit.key("t", {"customer_id": letter * 1000 + "a"}) in keys
