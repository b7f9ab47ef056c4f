"""What `using()` accepts, and what it says about the rest."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from django_reliable_jobs import registry, task
from django_reliable_jobs.exceptions import InvalidArguments


def charge(order_id: int, kind: str = "full") -> None:
    pass


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", {})


REFUSED_CHOICES = [
    ("queue_name", ["", "a b", 1], "queue_name must be text of 1 to 64 printable characters"),
    ("priority", [101, -101, 1.5, True, "1"], "priority must be a whole number from -100 to 100"),
    ("unique_key", ["", 1, ["a"], UUID(int=1)], "unique_key must be text"),
    ("run_after", [60, 60.0, "now", date(2030, 1, 1), True], "run_after must be an aware datetime or a timedelta"),
    ("run_after", [datetime(2030, 1, 1)], "has no time zone; use django.utils.timezone.make_aware()"),
    ("run_after", [timedelta(seconds=-1)], "lies in the past; leave it out to run now"),
    ("run_after", [timedelta.max, timedelta(days=36_501)], "is more than 100 years ahead"),
    (
        "run_after",
        [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)],
        "between the years 1970 and 9000",
    ),
    ("database", ["nowhere", 1, "", ["default"]], "database must be one of 'default'"),
    (
        "queue",
        ["x", None],
        "using() has no choice 'queue': did you mean 'queue_name'? the choices are queue_name, priority, run_after",
    ),
]


@pytest.mark.parametrize(
    ("choice", "value", "wanted"),
    [(choice, value, wanted) for choice, values, wanted in REFUSED_CHOICES for value in values],
    ids=lambda each: repr(each).partition(" at 0x")[0][:30],
)
def test_using_refuses_a_choice_that_can_not_hold(choice: str, value: Any, wanted: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        task(name="shop.charge")(charge).using(**{choice: value})
    assert wanted in str(caught.value)
    assert str(caught.value).startswith("shop.charge: ")


def test_using_refuses_a_database_that_is_not_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings, "lite", connections.configure_settings({"default": {}})["default"])
    monkeypatch.setitem(connections.settings["lite"], "ENGINE", "django.db.backends.sqlite3")
    with pytest.raises(InvalidArguments, match="jobs need PostgreSQL, but the database 'lite' is sqlite"):
        task()(charge).using(database="lite")
    del connections["lite"]


def test_using_keeps_earlier_choices_and_leaves_the_task_alone() -> None:
    declared = task(priority=5)(charge)
    placement = declared.using(priority=7, queue_name="fast").using(priority=0, unique_key=None)
    assert (placement.priority, placement.queue_name, placement.unique_key) == (0, "fast", None)
    assert (declared.priority, declared.queue_name) == (5, "default")


def test_using_accepts_due_moments_and_spans() -> None:
    declared = task()(charge)
    for run_after in (timedelta(0), timedelta(days=36_500), datetime(1970, 1, 1, tzinfo=UTC), None):
        assert declared.using(run_after=run_after).run_after == run_after
