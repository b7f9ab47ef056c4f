"""Which job a log record belongs to, and what of a job no log and no page shows."""

from __future__ import annotations

import logging
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pytest

from django_reliable_jobs import arguments, logs, masking
from django_reliable_jobs.exceptions import InvalidArguments
from django_reliable_jobs.logs import JobFields
from tests import tasks


def a_record(**extra: Any) -> logging.LogRecord:
    return logging.getLogger("shop").makeRecord("shop", logging.INFO, "f.py", 1, "hello", (), None, extra=extra)


def fields_of(record: logging.LogRecord) -> tuple[Any, Any, Any]:
    assert JobFields().filter(record)
    return record.job_id, record.task, record.attempt  # type: ignore[attr-defined]


def test_a_record_made_for_a_job_names_it() -> None:
    def inside() -> tuple[Any, Any, Any]:
        logs.enter(SimpleNamespace(id=7, task="shop.charge", attempt=2))
        return fields_of(a_record())

    assert copy_context().run(inside) == (7, "shop.charge", 2)
    assert fields_of(a_record()) == (None, None, None), "outside a job they are there too, for formats that name them"


def test_what_a_record_says_of_its_own_stays() -> None:
    assert fields_of(a_record(task="my own task")) == (None, "my own task", None)


def test_every_handler_is_marked_once() -> None:
    handler, logger = logging.NullHandler(), logging.getLogger("shop.marked")
    logger.addHandler(handler)
    logs.mark_handlers()
    logs.mark_handlers()
    assert [type(each) for each in handler.filters] == [JobFields]


class TestSensitive:
    def test_their_values_are_masked_wherever_they_stand(self) -> None:
        args, kwargs = masking.masked(tasks.pays.name, [5, "4111", "a", "b"], {})
        assert (args, kwargs) == ([5, "(sensitive)", "(sensitive)", "(sensitive)"], {})
        args, kwargs = masking.masked(tasks.pays.name, [5], {"card": "4111", "note": "x", "color": "red"})
        assert (args, kwargs) == ([5], {"card": "(sensitive)", "note": "x", "color": "red"})

    def test_others_are_shown(self) -> None:
        assert masking.masked("tests.tasks.effect", ["x"], {"y": 1}) == (["x"], {"y": 1})
        assert masking.masked("of.another.release", ["x"], {}) == (["x"], {})

    @pytest.mark.parametrize("card", [b"4111", {"number": b"4111"}, ["4111", {1: "4111"}]])
    def test_a_value_that_can_not_be_carried_is_refused_and_not_shown(self, card: Any) -> None:
        with pytest.raises(InvalidArguments) as caught:
            arguments.dump_arguments(
                tasks.pays.signature, (5, card), {}, task="pays", max_bytes=1000, sensitive=tasks.pays.sensitive
            )
        assert "4111" not in str(caught.value)
        assert str(caught.value).startswith("pays: card, whose value is not shown, is or contains what is not JSON")
