"""What a job can carry, and what is said about the rest. The round trip through PostgreSQL: engine/test_enqueue."""

from __future__ import annotations

import enum
import inspect
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import models
from django.http import QueryDict
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from django_reliable_jobs import arguments
from django_reliable_jobs.exceptions import InvalidArguments, InvalidCheckpoint, InvalidResult
from tests.models import Effect


class Colour(models.TextChoices):
    RED = "red", "Red"


class Size(models.IntegerChoices):
    LARGE = 3, "Large"


class Plain(enum.Enum):
    ONE = 1


def charge(order_id: Any, amount: Any = 1) -> None:
    pass


def anything(*args: Any, **kwargs: Any) -> None:
    pass


def positional(order_id: Any, /) -> None:
    pass


def keyword(*, order_id: Any) -> None:
    pass


def dump(function: Callable[..., Any], *args: Any, max_bytes: int = 10_000, **kwargs: Any) -> tuple[str, str]:
    carried = arguments.dump_arguments(
        inspect.signature(function), args, kwargs, task="shop.charge", max_bytes=max_bytes
    )
    assert all(each.value == arguments.load(each.text) for each in carried)
    return carried[0].text, carried[1].text


def refusal(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        dump(function, *args, **kwargs)
    message = str(caught.value)
    assert message.startswith("shop.charge")
    return message


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def containing_itself() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


REFUSED = [
    (datetime(2030, 1, 1, tzinfo=UTC), "is a datetime", "value.isoformat()"),
    (date(2030, 1, 1), "is a date (", "date.fromisoformat()"),
    (time(12), "is a time", "time.fromisoformat()"),
    (timedelta(1), "is a timedelta", "value.total_seconds()"),
    (UUID(int=1), "is a UUID", "pass str(value)"),
    (Decimal("1.10"), "is a Decimal", "pass str(value)"),
    (Plain.ONE, "is an Enum member", "pass value.value"),
    ((1, 2), "is a tuple", "pass list(value)"),
    (b"bytes", "is bytes", "base64"),
    (bytearray(b"bytes"), "is bytes", "base64"),
    ({1, 2}, "is a set", "pass sorted(value)"),
    (frozenset({1}), "is a set", "pass sorted(value)"),
    (Path("/tmp"), "is a path", "pass str(value)"),
    (float("nan"), "is not a finite number", "JSON has no NaN"),
    (float("inf"), "is not a finite number", "JSON has no NaN"),
    (-float("inf"), "is not a finite number", "JSON has no NaN"),
    ("a\0b", "contains the character U+0000", "remove it"),
    ("\ud83d", "contains a lone surrogate", "decode it properly"),
    ("\ud83d\ude00", "contains a lone surrogate", "decode it properly"),
    ({"a\0": 1}, "the key 'a\\x00' of order_id contains the character U+0000", "remove it"),
    ({"\udfff": 1}, "the key '\\udfff' of order_id contains a lone surrogate", "decode it properly"),
    ({1: 2}, "has the key 1", "pass str(key)"),
    ({None: 2}, "has the key None", "pass str(key)"),
    ({(1, 2): 2}, "has the key (1, 2)", "pass str(key)"),
    (10**5000, "is a whole number of more than 4,000 digits", "pass hex(value)"),
    (containing_itself(), "contains itself", ""),
    (nested(101), "is nested more than 100 levels deep", "pass its id"),
    (nested(50_000), "is nested more than 100 levels deep", "pass its id"),
    (Effect(pk=1), "is a model instance (Effect)", "pass its primary key"),
    (SimpleLazyObject(lambda: Effect(pk=1)), "is a model instance (Effect)", "pass its primary key"),
    (Effect.objects.all(), "is a QuerySet", "values_list('pk', flat=True)"),
    (gettext_lazy("order"), "is a lazy text", "pass str(value)"),
    (QueryDict("a=1&a=2"), "is of type QueryDict", "plain lists and dicts"),
    (object(), "is of type object, which is not JSON", "pass text, numbers"),
    (charge, "is of type function, which is not JSON", "pass text, numbers"),
]


@pytest.mark.parametrize(("value", "what", "way_out"), REFUSED, ids=lambda each: f"{type(each).__name__}"[:20])
def test_it_refuses_what_does_not_come_back_and_says_how_to_pass_it(value: Any, what: str, way_out: str) -> None:
    for message in (
        refusal(charge, value),
        refusal(charge, amount=1, order_id=value),
        refusal(keyword, order_id=value),
    ):
        assert "order_id" in message
        assert what in message
        assert way_out in message


def test_it_names_the_place_inside_an_argument() -> None:
    order = {"lines": [{"price": 1}, {"price": Decimal(2)}]}
    assert "order_id['lines'][1]['price'] is a Decimal" in refusal(charge, order)


def test_it_names_the_arguments_that_a_signature_collects() -> None:
    assert "args[1] is a UUID" in refusal(anything, 1, UUID(int=1))
    assert "shop.charge: at is a date" in refusal(anything, at=date(2030, 1, 1))
    assert "the name 'a\\x00' contains the character U+0000" in refusal(anything, **{"a\0": 1})
    assert "the name '\\ud800' contains a lone surrogate" in refusal(anything, **{"\ud800": 1})


def test_it_checks_the_call_against_the_signature() -> None:
    assert "missing a required argument: 'order_id'" in refusal(charge)
    assert "missing a required argument: 'order_id'" in refusal(charge, amount=2)
    assert "there is no argument 'ordr_id', did you mean 'order_id'?" in refusal(charge, ordr_id=1)
    assert "there is no argument 'zzz'" in refusal(charge, 1, zzz=1)
    assert "too many positional arguments" in refusal(charge, 1, 2, 3)
    assert "multiple values for argument 'order_id'" in refusal(charge, 1, order_id=1)
    assert "order_id" in refusal(positional, order_id=1)
    assert "too many positional arguments" in refusal(keyword, 1)


def test_it_shows_the_signature_that_a_call_does_not_fit() -> None:
    assert refusal(charge).startswith("shop.charge(order_id, amount=1): ")


def test_it_keeps_positional_and_keyword_arguments_as_they_were_given() -> None:
    assert dump(charge, 1, amount=2) == ("[1]", '{"amount":2}')
    assert dump(anything, 1, [2], x={"y": None}) == ("[1,[2]]", '{"x":{"y":null}}')
    assert dump(positional, 1) == ("[1]", "{}")
    assert dump(keyword, order_id=1) == ("[]", '{"order_id":1}')


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (Size.LARGE, 3),
        (mark_safe("<b>"), "<b>"),
        (OrderedDict(a=1), {"a": 1}),
        ({Colour.RED: 1}, {"red": 1}),
        (True, True),
        (10**4000, 10**4000),
        (nested(99), nested(99)),
        ("\U0001f600 ü \\u0000 \\ud800", "\U0001f600 ü \\u0000 \\ud800"),
    ],
    ids=lambda each: f"{type(each).__name__}"[:20],
)
def test_what_equals_plain_json_is_accepted_and_comes_back_plain(value: Any, plain: Any) -> None:
    text, _ = dump(charge, value, max_bytes=100_000)
    [back] = arguments.load(text)
    assert back == value == plain
    assert type(back) is type(plain)


def test_a_number_with_an_exponent_is_written_out() -> None:
    text, _ = dump(charge, [1e23, -1.5e300, 5e-324, 1e16, "1e+23", {'a"1e+5': 1e22}])
    assert "100000000000000000000000.0" in text
    assert '"1e+23"' in text
    assert '"a\\"1e+5":10000000000000000000000.0' in text
    assert arguments.load(text) == [[1e23, -1.5e300, 5e-324, 1e16, "1e+23", {'a"1e+5': 1e22}]]


def test_it_refuses_arguments_over_the_limit_and_names_the_largest() -> None:
    message = refusal(charge, "x" * 50, amount="y" * 60, max_bytes=100)
    assert "more than MAX_ARGUMENT_BYTES (100)" in message
    assert "the largest is amount" in message
    assert "Store the data and pass its id" in message
    assert "the largest is args[1]" in refusal(anything, 1, "x" * 100, max_bytes=100)
    assert "the largest is blob" in refusal(anything, small=1, blob="x" * 100, max_bytes=100)
    assert dump(charge, "x" * 50, amount="y" * 30, max_bytes=100)
    assert "the arguments take 4 bytes" in refusal(anything, max_bytes=3)


def test_a_result_is_checked_like_an_argument() -> None:
    assert arguments.dump_result({"a": [1, None]}, task="shop.charge", max_bytes=100) == '{"a":[1,null]}'
    with pytest.raises(InvalidResult, match=r"charge returned a value that can't be stored: result\['at'\] is a date"):
        arguments.dump_result({"at": date(2030, 1, 1)}, task="shop.charge", max_bytes=100)
    with pytest.raises(InvalidResult, match=r"charge returned 102 bytes as JSON, more than MAX_RESULT_BYTES \(100\)"):
        arguments.dump_result("x" * 100, task="shop.charge", max_bytes=100)


def test_the_same_call_has_the_same_arguments_however_it_is_written() -> None:
    signature = inspect.signature(charge)
    expected = {"order_id": 1, "amount": 1}
    assert arguments.call_arguments(signature, (1,), {}) == expected
    assert arguments.call_arguments(signature, (1, 1), {}) == expected
    assert arguments.call_arguments(signature, (), {"amount": 1, "order_id": 1}) == expected


def test_the_hash_of_a_key_depends_on_its_values_and_its_task_only() -> None:
    one = arguments.hash_of_key("shop.charge", {"order_id": 1, "kind": "full"})
    assert len(one) == 16
    assert arguments.hash_of_key("shop.charge", {"kind": "full", "order_id": 1}) == one
    others = [
        arguments.hash_of_key("shop.refund", {"order_id": 1, "kind": "full"}),
        arguments.hash_of_key("shop.charge", {"order_id": "1", "kind": "full"}),
        arguments.hash_of_key("shop.charge", {"order_id": 1}),
        arguments.hash_of_key("shop.charge", "1"),
    ]
    assert len({one, *others}) == 5


def test_text_is_made_fit_for_postgresql() -> None:
    assert arguments.without_bad_characters("a\0b\ud800c\U0001f600") == "a\ufffdb\ufffdc\U0001f600"


def test_a_checkpoint_is_checked_like_an_argument() -> None:
    def dump_checkpoint(name: Any, value: Any) -> str:
        return arguments.dump_checkpoint(name, value, task="shop.charge", max_bytes=20)

    assert dump_checkpoint("cursor", [1]) == "[1]"
    with pytest.raises(InvalidCheckpoint, match="the checkpoint can't be stored: cursor is a date"):
        dump_checkpoint("cursor", date(2030, 1, 1))
    with pytest.raises(InvalidCheckpoint, match=r"the checkpoint 'cursor' takes 32 bytes as JSON"):
        dump_checkpoint("cursor", "x" * 30)
    for name in ("", "x" * 256, "a\0", "\ud800", None, 1):
        with pytest.raises(InvalidCheckpoint, match="the name of a checkpoint is text of 1 to 255 characters"):
            dump_checkpoint(name, 1)
