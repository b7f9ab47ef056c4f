"""Moments, spans and values as people read them on the pages of the admin."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils.translation import override

from django_reliable_jobs.admin import words
from django_reliable_jobs.models import Job


@pytest.mark.parametrize(
    ("seconds", "english", "german"),
    [
        (0, "0 s", "0 s"),
        (0.000044, "< 1 ms", "< 1 ms"),
        (0.0123456, "0.0123 s", "0,0123 s"),
        (9.5, "9.5 s", "9,5 s"),
        (12.4, "12 s", "12 s"),
        (125, "2 min 5 s", "2 min 5 s"),
        (3 * 86_400 + 4 * 3_600 + 59, "3 d 4 h", "3 d 4 h"),
        (-1, "0 s", "0 s"),
    ],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, english: str, german: str) -> None:
    for language, expected in (("en", english), ("de", german)):
        with override(language):
            assert words.span_in_words(timedelta(seconds=seconds)) == expected


class TestJSON:
    def test_a_short_value_is_on_one_line_and_a_longer_one_on_many(self) -> None:
        assert "{&quot;a&quot;: 1}" in words.as_json({"a": 1}, "x")
        assert words.as_json({"a": "b" * 100}, "x").count("\n") == 2

    def test_a_long_value_is_folded(self) -> None:
        shown = words.as_json(["<b>" * 1000], "result")
        assert shown.startswith('<details data-key="result"><summary>3,008 characters</summary>')
        assert "&lt;b&gt;" in shown and "<b>" not in shown

    def test_of_a_huge_value_the_beginning_is_shown(self) -> None:
        shown = words.as_json("x" * 2_000_000, "result")
        assert len(shown) < words.MOST_JSON + 1000
        assert "the first 100,000 of 2,000,002 characters" in shown


@pytest.mark.django_db
@pytest.mark.parametrize("column", ["args", "kwargs", "result"])
def test_the_page_of_a_job_folds_what_is_long(admin_client: Client, column: str) -> None:
    value: dict[str, Any] = {"text": "x" * 5000}
    job = Job.objects.create(task="x", **{column: [value] if column == "args" else value})
    page = admin_client.get(f"/admin/django_reliable_jobs/job/{job.pk}/change/").content.decode()
    assert re.findall(r'<details data-key="(\w+)">', page) == [column]
