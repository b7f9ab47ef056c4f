"""The table of cases: expected fires worked out on the UTC time line, without the code under test."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from django_reliable_jobs.exceptions import InvalidRecurrence, ReliableJobsError
from django_reliable_jobs.recurrence import Cron, Every, Recurrence

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("cron_cases.jsonl").read_text().splitlines()
]
INVALID = [case for case in CASES if case.get("invalid")]
VALID = [case for case in CASES if not case.get("invalid")]

UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def name(case: dict[str, Any]) -> str:
    return str(case["id"])


def recurrence_of(case: dict[str, Any]) -> Recurrence:
    if case.get("kind") == "interval":
        parts = re.findall(r"([0-9]+)([wdhms])", case["expr"])
        anchor = datetime.fromisoformat(case["anchor_utc"])
        return Every(anchor=anchor, **{UNITS[unit]: int(number) for number, unit in parts})
    return Cron(case["expr"], timezone=case["tz"], on_gap=case["gap"], on_fold=case["fold"])


def expected_of(case: dict[str, Any]) -> list[datetime]:
    return [datetime.fromisoformat(moment) for moment in case["expected_utc"]]


def test_the_table_is_whole() -> None:
    assert len(VALID) > 90
    assert len(INVALID) > 10


@pytest.mark.parametrize("case", VALID, ids=name)
def test_next_after_gives_the_expected_fires(case: dict[str, Any]) -> None:
    recurrence, moment = recurrence_of(case), datetime.fromisoformat(case["start_utc"])
    for expected in expected_of(case):
        fire = recurrence.next_after(moment)
        assert fire == expected
        assert fire.tzinfo is UTC
        moment = fire


@pytest.mark.parametrize("case", VALID, ids=name)
def test_between_and_last_before_give_the_same_fires(case: dict[str, Any]) -> None:
    recurrence, expected = recurrence_of(case), expected_of(case)
    start = datetime.fromisoformat(case["start_utc"])
    assert list(recurrence.between(start, expected[-1])) == expected
    moment = expected[-1] + timedelta(seconds=1)
    for earlier in reversed(expected):
        assert recurrence.last_before(moment) == earlier
        moment = earlier
    before = recurrence.last_before(moment)
    assert before is None or before <= start


@pytest.mark.parametrize("case", VALID, ids=name)
def test_auto_is_resolved_as_expected(case: dict[str, Any]) -> None:
    recurrence = recurrence_of(case)
    if isinstance(recurrence, Cron):
        assert recurrence.effective_gap == case["gap_eff"]
        assert recurrence.effective_fold == case["fold_eff"]


@pytest.mark.parametrize("case", INVALID, ids=name)
def test_what_cannot_hold_is_refused_when_it_is_made(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecurrence) as raised:
        recurrence_of(case)
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, ReliableJobsError)
    assert repr(case["expr"]) in str(raised.value)
