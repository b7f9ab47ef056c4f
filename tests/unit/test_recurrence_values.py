"""Cron, Every and Once as values, and what they share."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence import Cron, Every, Once, Recurrence, from_dict

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
CRON = Cron("0 2 * * *", timezone="Europe/Berlin", on_gap="shift", on_fold="both")
EVERY = Every(minutes=90, anchor=NOON)
ONCE = Once(at=NOON)

each = pytest.mark.parametrize("recurrence", [CRON, EVERY, ONCE], ids=["cron", "every", "once"])


@each
def test_it_is_a_frozen_value(recurrence: Recurrence) -> None:
    same = from_dict(recurrence.as_dict())
    assert same == recurrence
    assert hash(same) == hash(recurrence)
    assert pickle.loads(pickle.dumps(recurrence)) == recurrence
    assert copy.deepcopy(recurrence) == recurrence
    for name in ("expression", "interval", "at"):
        if hasattr(recurrence, name):
            with pytest.raises(FrozenInstanceError):
                setattr(recurrence, name, None)


@each
def test_its_dict_form_is_json(recurrence: Recurrence) -> None:
    assert from_dict(json.loads(json.dumps(recurrence.as_dict()))) == recurrence


@each
def test_its_repr_makes_it_again(recurrence: Recurrence) -> None:
    import datetime as datetime_module

    names = {"Cron": Cron, "Every": Every, "Once": Once, "datetime": datetime_module}
    assert eval(repr(recurrence), names) == recurrence


@pytest.mark.parametrize(
    ("make", "fault", "way_out"),
    [
        (
            lambda: Cron("0 2 * * *", tz="Europe/Berlin"),
            "Cron() has no argument 'tz': did you mean 'timezone'?",
            "Cron(",
        ),
        (lambda: Cron("0 2 * * *", "Europe/Berlin"), "Cron() takes only expression without a name: ", "timezone="),
        (lambda: Cron(), "missing a required argument: 'expression'", "Cron('0 2 * * *'"),
        (lambda: Every(5), "Every() takes nothing without a name: it takes weeks, days, ", "Every(minutes=5)"),
        (lambda: Every(minuts=5), "Every() has no argument 'minuts': did you mean 'minutes'?", "Every(minutes=5)"),
        (lambda: Every(zzz=5), "Every() has no argument 'zzz': it takes weeks, days, ", "Every(minutes=5)"),
        (lambda: Once(when=NOON), "Once() has no argument 'when': it takes at", "Once(at=datetime("),
        (lambda: Once(NOON, NOON), "Once() takes only at without a name", "Once(at=datetime("),
    ],
)
def test_wrong_words_are_told_with_those_that_are_right(make: Callable[[], object], fault: str, way_out: str) -> None:
    with pytest.raises(InvalidRecurrence) as refused:
        make()
    assert fault in str(refused.value)
    assert way_out in str(refused.value)


@each
def test_a_naive_moment_is_refused(recurrence: Recurrence) -> None:
    naive = datetime(2026, 1, 1)
    for ask in (recurrence.next_after, recurrence.last_before):
        with pytest.raises(ValueError, match="moment 2026-01-01T00:00:00 is naive: give it a time zone"):
            ask(naive)
        with pytest.raises(TypeError, match="moment must be a datetime, not date"):
            ask(date(2026, 1, 1))  # type: ignore[arg-type]
    for ask_range in (recurrence.between, recurrence.clock_change_notes):
        # At the call, not when the first value is taken.
        with pytest.raises(ValueError, match=r"after 2026.* is naive"):
            ask_range(naive, NOON)
        with pytest.raises(ValueError, match=r"until 2026.* is naive"):
            ask_range(NOON, naive)


@each
def test_a_range_is_open_at_its_start_and_closed_at_its_end(recurrence: Recurrence) -> None:
    fire = recurrence.next_after(NOON - timedelta(days=1))
    assert fire is not None
    tick = timedelta(microseconds=1)
    assert list(recurrence.between(fire - tick, fire)) == [fire]
    assert list(recurrence.between(fire, fire)) == []
    assert list(recurrence.between(fire, fire - timedelta(days=1))) == []
    assert recurrence.next_after(fire - tick) == fire
    assert recurrence.next_after(fire) != fire
    assert recurrence.last_before(fire + tick) == fire
    assert recurrence.last_before(fire) != fire


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({}, "kind None"),
        ({"kind": "solar"}, "kind 'solar' is not a recurrence"),
        ({"kind": "cron"}, "no 'expression'"),
        ({"kind": "cron", "expression": "0 0 * * *", "tz": "UTC"}, "cron has no tz"),
        ({"kind": "cron", "expression": "61 * * * *"}, "minute field"),
        ({"kind": "cron", "expression": None}, "must be a string"),
        ({"kind": "every"}, "less than one second"),
        ({"kind": "every", "seconds": "60"}, "not a length of time"),
        ({"kind": "every", "seconds": 60, "anchor": "yesterday"}, "anchor 'yesterday'"),
        ({"kind": "every", "seconds": 60, "anchor": "2026-01-01T00:00:00"}, "naive"),
        ({"kind": "once"}, "no 'at'"),
        ({"kind": "once", "at": 5}, "at 5 is not a date and time"),
    ],
)
def test_a_dict_that_is_no_recurrence_is_refused(stored: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRecurrence, match=words):
        from_dict(stored)


def test_from_dict_of_a_class_wants_its_own_kind() -> None:
    with pytest.raises(InvalidRecurrence, match="kind 'once' is not 'cron'"):
        Cron.from_dict(ONCE.as_dict())


def test_what_a_stored_cron_leaves_out_has_its_default() -> None:
    assert from_dict({"kind": "cron", "expression": "0 0 * * *"}) == Cron("0 0 * * *")


def test_spaces_do_not_make_another_cron() -> None:
    assert Cron(" 0  2 *\t* * ") == Cron("0 2 * * *")
    assert Cron("0 2 * * *") != Cron("0 2 * * *", timezone="Europe/Berlin")
    assert Cron("0 2 * * *") != Cron("0 2 * * *", on_gap="after")


def test_it_needs_no_django() -> None:
    # The package itself imports Django, so its modules are loaded beside an empty one.
    code = """
import importlib.util, sys, types
root = sys.argv[1]
package = types.ModuleType("django_reliable_jobs")
package.__path__ = [root]
sys.modules["django_reliable_jobs"] = package
from django_reliable_jobs.recurrence import Cron
assert Cron("0 2 * * *").describe()
assert not any(name.split(".")[0] == "django" for name in sys.modules)
"""
    root = sys.modules["django_reliable_jobs"].__path__[0]
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


# Every


def test_an_interval_keeps_its_phase() -> None:
    anchor = datetime(2026, 3, 29, 0, 10, tzinfo=UTC)
    every = Every(hours=7, anchor=anchor)
    for k in (0, 1, 1000, 10**6):
        fire = anchor + k * timedelta(hours=7)
        assert every.next_after(fire - timedelta(microseconds=1)) == fire
        assert every.next_after(fire) == fire + timedelta(hours=7)
        assert every.last_before(fire + timedelta(hours=7)) == fire


def test_the_anchor_is_the_first_fire() -> None:
    assert EVERY.next_after(NOON - timedelta(days=400)) == NOON
    assert EVERY.last_before(NOON) is None
    assert EVERY.last_before(NOON + timedelta(seconds=1)) == NOON
    assert Every(days=1).next_after(NOON) == datetime(2026, 5, 2, tzinfo=UTC)


def test_an_anchor_in_a_zone_is_an_instant() -> None:
    berlin = datetime(2026, 5, 1, 14, tzinfo=ZoneInfo("Europe/Berlin"))
    assert Every(minutes=90, anchor=berlin) == EVERY
    assert Every(minutes=90, anchor=berlin).anchor.tzinfo is UTC


def test_the_units_add_up() -> None:
    assert Every(minutes=90) == Every(hours=1, minutes=30) == Every(seconds=5400) == Every(hours=1.5)
    assert Every(weeks=1, days=1).interval == timedelta(days=8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "less than one second"),
        ({"seconds": 0}, "less than one second"),
        ({"minutes": -5}, "less than one second"),
        ({"seconds": 0.5}, "less than one second"),
        ({"seconds": 1.5}, "whole seconds"),
        ({"minutes": "5"}, "not a length of time"),
        ({"days": float("nan")}, "not a length of time"),
        ({"days": float("inf")}, "not a length of time"),
        ({"weeks": 10**12}, "not a length of time"),
        ({"minutes": 5, "anchor": datetime(2026, 1, 1)}, "anchor .* is naive"),
        ({"minutes": 5, "anchor": "2026-01-01"}, "anchor must be a datetime, not str"),
    ],
)
def test_an_interval_that_cannot_hold_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRecurrence, match=words):
        Every(**arguments)  # type: ignore[arg-type]


def test_an_interval_ends_with_the_calendar() -> None:
    every = Every(weeks=52 * 5000)
    assert every.next_after(datetime(9000, 1, 1, tzinfo=UTC)) is None
    assert every.last_before(datetime(9000, 1, 1, tzinfo=UTC)) is not None


def test_elapsed_time_has_no_notes() -> None:
    assert list(EVERY.clock_change_notes(NOON, NOON + timedelta(days=400))) == []
    assert list(ONCE.clock_change_notes(NOON, NOON + timedelta(days=400))) == []


@pytest.mark.parametrize(
    ("recurrence", "description"),
    [
        (Every(hours=1), "Every hour of elapsed time, counted from 1 January 1970 00:00 UTC."),
        (Every(weeks=2), "Every 14 days of elapsed time, counted from 1 January 1970 00:00 UTC."),
        (
            Every(days=1, hours=1, minutes=30, seconds=1, anchor=NOON),
            "Every 1 day, 1 hour, 30 minutes and 1 second of elapsed time, counted from 1 May 2026 12:00 UTC.",
        ),
        (ONCE, "Once, on 1 May 2026 at 12:00 (UTC)."),
        (Once(at=NOON.replace(second=5)), "Once, on 1 May 2026 at 12:00:05 (UTC)."),
    ],
)
def test_it_is_described(recurrence: Recurrence, description: str) -> None:
    assert recurrence.describe() == description


def test_repr_of_an_interval_reads_as_it_was_written() -> None:
    assert repr(Every(minutes=90)) == "Every(hours=1, minutes=30)"


# Once


def test_once_fires_once() -> None:
    assert ONCE.next_after(NOON - timedelta(seconds=1)) == NOON
    assert ONCE.next_after(NOON) is None
    assert ONCE.last_before(NOON) is None
    assert ONCE.last_before(NOON + timedelta(seconds=1)) == NOON
    assert list(islice(ONCE.between(NOON - timedelta(days=1), NOON + timedelta(days=1)), 5)) == [NOON]


def test_once_is_an_instant_whatever_the_zone_it_was_given_in() -> None:
    assert Once(at=datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))) == ONCE
    with pytest.raises(InvalidRecurrence, match=r"at .* is naive"):
        Once(at=datetime(2026, 5, 1, 12))
    with pytest.raises(InvalidRecurrence, match="at must be a datetime, not NoneType"):
        Once(at=None)  # type: ignore[arg-type]
