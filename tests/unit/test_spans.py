"""Spans as people type them, and back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_reliable_jobs.spans import parse_span, write_span


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1h30m", timedelta(minutes=90)),
        ("26h", timedelta(hours=26)),
        ("1d", timedelta(days=1)),
        ("3d4h5m6s", timedelta(days=3, hours=4, minutes=5, seconds=6)),
        ("0.5s", timedelta(seconds=0.5)),
    ],
)
def test_a_span_is_read_and_written_alike(text: str, span: timedelta) -> None:
    assert parse_span(text) == span
    assert parse_span(write_span(span)) == span


@pytest.mark.parametrize("span", [timedelta(hours=26), timedelta(hours=48), timedelta(days=1), timedelta(minutes=90)])
def test_it_is_written_as_people_say_it(span: timedelta) -> None:
    said = {26 * 3600: "26h", 48 * 3600: "2d", 24 * 3600: "1d", 90 * 60: "1h30m"}
    assert write_span(span) == said[int(span.total_seconds())]


@pytest.mark.parametrize("text", ["", "soon", "5", "5 parsecs", "0s", "99999d"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no span|more than nothing"):
        parse_span(text)
