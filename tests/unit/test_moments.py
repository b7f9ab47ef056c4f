from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from django_reliable_jobs.management.jobs.moments import parse_moment, parse_span, span


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("15min", 900), ("2h", 7200), ("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400)],
)
def test_a_span_is_read_as_people_write_it(text: str, seconds: int) -> None:
    assert parse_span(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "2", "h", "2 years", "-2h", "0s", "2h!", "99999d"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"span|nothing"):
        parse_span(text)


@pytest.mark.parametrize(("name", "hour"), [("UTC", 8), ("Europe/Berlin", 7)])
def test_a_moment_without_a_zone_is_in_the_current_one(name: str, hour: int) -> None:
    with timezone.override(name):
        assert parse_moment("2190-01-31T08:00") == datetime.fromisoformat(f"2190-01-31T0{hour}:00Z")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (timedelta(milliseconds=12), "12 ms"),
        (timedelta(seconds=3.4), "3 s"),
        (timedelta(seconds=59.7), "1 min"),
        (timedelta(minutes=4), "4 min"),
        (timedelta(minutes=59, seconds=40), "1 h"),
        (timedelta(hours=2, minutes=5), "2 h 5 min"),
        (timedelta(days=3, hours=5), "3 d"),
    ],
)
def test_a_span_is_written_with_one_or_two_units(given: timedelta, text: str) -> None:
    assert span(given) == text
