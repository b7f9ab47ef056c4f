"""The settings: their defaults, their rules, and what is said about a mistake."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_reliable_jobs import conf
from django_reliable_jobs.conf import Settings, find_mistakes, settings


def with_settings(value: Any) -> override_settings:
    return override_settings(RELIABLE_JOBS=value)


def test_each_setting_has_a_default() -> None:
    with with_settings({}):
        assert settings.LEASE_SECONDS == 30
        assert settings.POLL_SECONDS == 1
        assert settings.MAX_ATTEMPTS == 5
        assert settings.MAX_LOSSES == 5
        assert settings.MAX_ARGUMENT_BYTES == settings.MAX_RESULT_BYTES == 256 * 1024
        assert settings.LISTEN == "auto"
        assert settings.TASK_MODULES == ()
        assert settings.retention_of("SUCCEEDED") == settings.retention_of("CANCELLED") == timedelta(days=7)
        assert settings.retention_of("DEAD") is None


def test_the_defaults_obey_the_rules() -> None:
    defaults = Settings()
    assert find_mistakes({each.name: getattr(defaults, each.name) for each in fields(Settings)}) == []


def test_each_setting_has_a_rule() -> None:
    assert {each.name for each in fields(Settings)} == {key for key, _, _ in conf._RULES}


def test_what_is_set_is_read_and_the_rest_keeps_its_default() -> None:
    with with_settings({"MAX_ATTEMPTS": 9, "TASK_MODULES": ["a.b"], "RETENTION": {"DEAD": timedelta(days=90)}}):
        assert (settings.MAX_ATTEMPTS, settings.MAX_LOSSES) == (9, 5)
        assert settings.TASK_MODULES == ("a.b",)
        assert settings.retention_of("DEAD") == timedelta(days=90)
        assert settings.retention_of("SUCCEEDED") == timedelta(days=7)


def test_a_change_in_a_test_is_seen_and_undone() -> None:
    with with_settings({"MAX_ATTEMPTS": 2}):
        assert settings.MAX_ATTEMPTS == 2
        with with_settings({"MAX_ATTEMPTS": 3}):
            assert settings.MAX_ATTEMPTS == 3
        assert settings.MAX_ATTEMPTS == 2
    assert settings.MAX_ATTEMPTS == 5


def test_a_project_without_the_dict_has_the_defaults() -> None:
    with override_settings():
        from django.conf import settings as django_settings

        del django_settings.RELIABLE_JOBS
        conf._load.cache_clear()
        assert settings.MAX_ATTEMPTS == 5
    conf._load.cache_clear()


REFUSED: list[tuple[str, list[Any], str]] = [
    (
        "LEASE_SECONDS",
        [0, 0.5, "30", None, True, math.nan, math.inf, 90_000],
        "a number of seconds between 1 and 86400",
    ),
    ("LEADER_SECONDS", [0, 0.5, "10", None, math.nan, 90_000], "a number of seconds between 1 and 86400"),
    ("MISFIRE_GRACE_SECONDS", [0, 0.5, "60", None, math.nan], "a number of seconds between 1 and 86400"),
    ("SLOT_RETENTION", [90, "90d", timedelta(hours=23)], "a timedelta of at least a day, or None"),
    ("POLL_SECONDS", [0, 61, "1", None, math.nan], "a number of seconds between 0.05 and 60"),
    ("MAX_ATTEMPTS", [0, 1.5, "5", None, True, 32_768], "a whole number from 1 to 32767"),
    ("MAX_LOSSES", [0, 1.5, None, 32_768], "a whole number from 1 to 32767"),
    (
        "RETENTION",
        [None, [], {"READY": None}, {"DEAD": 7}, {"DEAD": timedelta(-1)}],
        "a dict from SUCCEEDED, CANCELLED",
    ),
    ("MAX_ARGUMENT_BYTES", [0, "1", None], "a whole number of bytes"),
    ("MAX_RESULT_BYTES", [0, "1", None], "a whole number of bytes"),
    ("MAX_ERROR_CHARACTERS", [199, "1", None], "a whole number, at least 200"),
    ("LISTEN", ["", None, True, 1], "'auto', 'off' or a DSN"),
    ("TASK_MODULES", ["shop.jobs", None, [1]], "a list of dotted module paths"),
]


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [(key, value, wanted) for key, values, wanted in REFUSED for value in values],
    ids=lambda each: repr(each).partition(" at 0x")[0][:30],
)
def test_it_says_what_a_setting_must_be(key: str, value: Any, wanted: str) -> None:
    [mistake] = find_mistakes({key: value})
    assert mistake.startswith(f"RELIABLE_JOBS[{key!r}] must be ")
    assert wanted in mistake
    assert mistake.endswith(f", not {value!r}.")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("LEASE_SECOND", "did you mean 'LEASE_SECONDS'?"),
        ("max_attempts", "did you mean 'MAX_ATTEMPTS'?"),
        ("RETENTIONS", "did you mean 'RETENTION'?"),
        ("ZZZ", "the keys are LEASE_SECONDS, "),
        (1, "the keys are LEASE_SECONDS, "),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(key: Any, hint: str) -> None:
    [mistake] = find_mistakes({key: 1})
    assert mistake.startswith(f"RELIABLE_JOBS has no key {key!r}: ")
    assert hint in mistake


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_it_must_be_a_dict(value: Any) -> None:
    [mistake] = find_mistakes(value)
    assert mistake.startswith("RELIABLE_JOBS must be a dict, not ")


def test_every_mistake_is_told_at_first_use() -> None:
    with (
        with_settings({"MAX_ATTEMPTS": 0, "LISTN": "off"}),
        pytest.raises(ImproperlyConfigured, match=r"no key 'LISTN': did you mean 'LISTEN'\?.*'MAX_ATTEMPTS'\] must be"),
    ):
        assert settings.LEASE_SECONDS


def test_task_modules_wait_until_the_mistakes_are_gone() -> None:
    with with_settings({"MAX_ATTEMPTS": 0, "TASK_MODULES": ["a.b"]}):
        assert conf.task_modules() == ()
    with with_settings({"TASK_MODULES": ["a.b"]}):
        assert conf.task_modules() == ("a.b",)
