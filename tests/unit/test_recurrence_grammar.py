"""The grammar: what each form means, and what is refused with which words."""

from __future__ import annotations

import pytest

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence import Cron


@pytest.mark.parametrize(
    ("expression", "canonical"),
    [
        ("* * * * *", "* * * * *"),
        ("*/15 */6 * * *", "0,15,30,45 0,6,12,18 * * *"),
        ("*/60 */24 * * *", "0 0 * * *"),
        ("*/7 0 * * *", "0,7,14,21,28,35,42,49,56 0 * * *"),
        ("5-5 * * * *", "5 * * * *"),
        ("10-20/5 9-17 * * *", "10,15,20 9,10,11,12,13,14,15,16,17 * * *"),
        ("50/15 22/1 * * *", "50 22,23 * * *"),
        ("59/15 0 * * *", "59 0 * * *"),
        ("30,10,20,10 0 * * *", "10,20,30 0 * * *"),
        ("*/20,7 0 * * *", "0,7,20,40 0 * * *"),
        ("0-59 0-23 1-31 1-12 *", "* * * * *"),
        ("00 08 01 01 *", "0 8 1 1 *"),
        # Ranges that wrap, and steps that carry through the wrap.
        ("0 22-2 * * *", "0 0,1,2,22,23 * * *"),
        ("0 23-5/4 * * *", "0 3,23 * * *"),
        ("0 0 1 nov-feb *", "0 0 1 1,2,11,12 *"),
        ("0 0 1 11-3/2 *", "0 0 1 1,3,11 *"),
        ("0 0 1 10-2/3 *", "0 0 1 1,10 *"),
        ("0 0 * * fri-mon", "0 0 * * 0,1,5,6"),
        ("0 0 * * sat-sun", "0 0 * * 0,6"),
        ("0 0 * * 5-2/2", "0 0 * * 0,2,5"),
        # Weekday 7 is Sunday, wherever it stands.
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 0,7", "0 0 * * 0"),
        ("0 0 * * 5-7/2", "0 0 * * 0,5"),
        ("0 0 * * 7-2", "0 0 * * 0,1,2"),
        ("0 0 * * 7-7", "0 0 * * 0"),
        ("0 0 * * 0-7", "0 0 * * *"),
        ("0 0 * * 7/3", "0 0 * * 0,3,6"),
        ("0 0 * * 6/1", "0 0 * * 6"),
        ("0 0 * * 1/2", "0 0 * * 1,3,5"),
        ("0 0 * * */3", "0 0 * * 0,3,6"),
        # Names, in any case.
        ("0 0 1 JAN,Dec mon-Fri", "0 0 1 1,12 1,2,3,4,5"),
        ("0 0 * jan/3 *", "0 0 * 1,4,7,10 *"),
        ("0 0 * * mon-5", "0 0 * * 1,2,3,4,5"),
        ("0 0 * * mon-mon", "0 0 * * 1"),
        # A free day field is *, ? or */1; anything else restricts.
        ("0 0 ? * ?", "0 0 * * *"),
        ("0 0 ? * mon", "0 0 * * 1"),
        ("0 0 */1 * mon", "0 0 * * 1"),
        ("0 0 13 * */1", "0 0 13 * *"),
        ("0 0 */2 1 mon", "0 0 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 1 1"),
        ("0 0 1-31 * mon", "0 0 * * *"),
        ("0 0 13 * 0-6", "0 0 * * *"),
        # The day extensions.
        ("0 0 L * *", "0 0 L * *"),
        ("0 0 15,l * ?", "0 0 15,L * *"),
        ("0 0 15W * *", "0 0 15W * *"),
        ("0 0 31w 2 *", "0 0 31W 2 *"),
        ("0 0 * * fri#2", "0 0 * * 5#2"),
        ("0 0 ? * 7#1,2#3", "0 0 * * 0#1,2#3"),
        ("0 0 * * L5", "0 0 * * L5"),
        ("0 0 * * L7,1#1", "0 0 * * 1#1,L0"),
        ("0 0 * * 0#1,1#1,2#1,3#1,4#1,5#1,6#1", "0 0 * * 0#1,1#1,2#1,3#1,4#1,5#1,6#1"),
        ("0 0 1-29,31,L * *", f"0 0 {','.join(map(str, [*range(1, 30), 31]))},L * *"),
        # Days that never come add nothing beside a weekday.
        ("0 0 30 2 mon", "0 0 * 2 1"),
        ("0 0 31 4,6 0", "0 0 * 4,6 0"),
        ("0 0 30,31 4 0", "0 0 30 4 0"),
        # Macros.
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_an_expression_means(expression: str, canonical: str) -> None:
    assert Cron(expression).canonical == canonical


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", ["empty", "five fields"]),
        (" \t ", ["empty"]),
        ("* * * *", ["4 fields instead of five", "minute hour day month weekday"]),
        ("0 0 0 * * *", ["6 fields instead of five", "Every(seconds=30)"]),
        ("0 0 * * * 0 2026", ["7 fields"]),
        ("daily", ["1 field instead"]),
        ("0 0 * * *" + " " * 250, ["259 characters", "255"]),
        ("0\u00a00 * * *", ["'\\xa0'", "ASCII"]),
        ("0 0 * * \u0661", ["ASCII"]),
        ("0 0 * * *\n", ["weekday", r"*\n"]),
        ("@reboot", ["@reboot", "not a moment"]),
        ("@every 90m", ["Every(minutes=90)"]),
        ("@fortnightly", ["@fortnightly", "@hourly"]),
        ("@daily 5", ["@daily"]),
        ("60 * * * *", ["minute field '60'", "out of range", "0 to 59"]),
        ("0 24 * * *", ["hour field '24'", "0 to 23"]),
        ("0 0 0 * *", ["day-of-month field '0'", "1 to 31"]),
        ("0 0 32 * *", ["day-of-month", "32"]),
        ("0 0 * 13 *", ["month field '13'", "1 to 12"]),
        ("0 0 * * 8", ["weekday field '8'", "0 to 7"]),
        ("0 0 1-40 * *", ["40 is out of range"]),
        ("*/0 * * * *", ["step of 0"]),
        ("*/61 * * * *", ["step 61", "60 values", "Every"]),
        ("*/90 * * * *", ["step 90"]),
        ("0 */25 * * *", ["step 25", "24 values"]),
        ("0 0 */32 * *", ["step 32", "31 values"]),
        ("0 0 * */13 *", ["step 13"]),
        ("0 0 * * */8", ["step 8", "7 values"]),
        ("1-5/61 * * * *", ["step 61"]),
        ("50-10 * * * *", ["minute", "50-10 runs backwards", "10-50"]),
        ("0 0 25-5 * *", ["day-of-month", "25-5 runs backwards"]),
        ("-5 * * * *", ["negative"]),
        ("1- * * * *", ["can't be read"]),
        ("1-2-3 * * * *", ["can't be read"]),
        ("1/2/3 * * * *", ["can't be read"]),
        ("*-5 * * * *", ["can't be read"]),
        ("5* * * * *", ["can't be read"]),
        ("1.5 * * * *", ["can't be read", "whole numbers"]),
        ("+5 * * * *", ["can't be read"]),
        ("1,,2 * * * *", ["empty", "comma"]),
        ("1,2, * * * *", ["empty", "comma"]),
        ("H * * * *", ["H", "every host", "jitter"]),
        ("R 0 * * *", ["R", "random"]),
        ("H(0-29) * * * *", ["can't be read"]),
        ("R(0-9)/2 * * * *", ["can't be read"]),
        ("mon * * * *", ["mon is not a number"]),
        ("0 0 * mon *", ["mon is not a name", "jan"]),
        ("0 0 * * monday", ["three letters", "mon"]),
        ("0 0 * january *", ["jan"]),
        ("? * * * *", ["minute", "two day fields"]),
        ("0 0 ?/2 * *", ["? stands alone"]),
        ("0 0 1,? * *", ["? stands alone"]),
        ("0 L * * *", ["hour", "l is not a number"]),
        ("0 0 L-3 * *", ["day-of-month"]),
        ("0 0 LW * *", ["day-of-month", "31W"]),
        ("0 0 W15 * *", ["15W"]),
        ("0 0 32W * *", ["32 is out of range"]),
        ("0 0 1W,15W * *", ["W stands alone"]),
        ("0 0 *,15W * *", ["W stands alone"]),
        ("0 0 *,40 * *", ["40 is out of range"]),
        ("0 0 1#2 * *", ["weekday field"]),
        ("0 0 * * L", ["L5"]),
        ("0 0 * * L8", ["8 is out of range"]),
        ("0 0 * * 5L", ["weekday", "L5"]),
        ("0 0 * * 5#0", ["#0", "#1 to #5"]),
        ("0 0 * * 5#6", ["#6"]),
        ("0 0 * * 1-5#2", ["one weekday"]),
        ("0 0 * * 5#2,1", ["don't mix", "two schedules"]),
        ("0 0 * * L5,1", ["don't mix"]),
        ("0 0 L * mon", ["day-of-month", "weekday field free"]),
        ("0 0 15W * 1-5", ["weekday field free"]),
        ("0 0 1 * 5#2", ["weekday", "day-of-month field free"]),
        ("0 0 13 * L5", ["day-of-month field free"]),
        ("0 0 30 2 *", ["never comes", "29 days", "write L"]),
        ("0 0 31 2,4,6,9,11 ?", ["never comes", "30 days"]),
        ("0 0 30,31 feb *", ["never comes"]),
    ],
)
def test_what_is_refused_says_why(expression: str, words: list[str]) -> None:
    with pytest.raises(InvalidRecurrence) as raised:
        Cron(expression)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["*"] * 5])
def test_an_expression_is_a_string(expression: object) -> None:
    with pytest.raises(InvalidRecurrence, match="expression must be a string"):
        Cron(expression)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("Europe/Berlim", "did you mean 'Europe/Berlin'"),
        ("europe/berlin", "did you mean 'Europe/Berlin'"),
        ("Mars/Olympus_Mons", "IANA"),
        ("", "not known"),
        ("Europe", "not known"),
        ("/etc/localtime", "not known"),
        ("../UTC", "not known"),
        ("localtime", "differs from host to host"),
        ("posix/Europe/Berlin", "differs from host to host"),
        ("right/Europe/Berlin", "differs from host to host"),
    ],
)
def test_a_zone_that_is_unknown_or_not_the_same_everywhere_is_refused(zone: str, words: str) -> None:
    with pytest.raises(InvalidRecurrence, match=words):
        Cron("0 2 * * *", timezone=zone)


def test_a_rule_that_is_unknown_is_refused() -> None:
    with pytest.raises(InvalidRecurrence, match="on_gap 'later' is not a rule: use auto, after"):
        Cron("0 2 * * *", on_gap="later")  # type: ignore[arg-type]
    with pytest.raises(InvalidRecurrence, match="on_fold 'after' is not a rule: use auto, first"):
        Cron("0 2 * * *", on_fold="after")  # type: ignore[arg-type]
    with pytest.raises(InvalidRecurrence, match="on_fold must be a string"):
        Cron("0 2 * * *", on_fold=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("expression", ["30 2 * 3 L7", "*/30 2 * 3 7#5,L7"])
def test_a_time_that_the_rule_always_leaves_out_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRecurrence, match=r"never fires.*on_gap='after'"):
        Cron(expression, timezone="Europe/Berlin", on_gap="skip")
    assert Cron(expression, timezone="Europe/Berlin", on_gap="after").canonical


@pytest.mark.parametrize(
    ("expression", "is_wildcard"),
    [
        ("* * * * *", True),
        ("*/15 2 * * *", True),
        ("0 * * * *", True),
        ("0 */2 * * *", True),
        ("*/20,7 0 * * *", True),
        ("@hourly", True),
        ("0 0 * * *", False),
        ("0-59 2 * * *", False),
        ("0/15 2 * * *", False),
        ("0 0-23 * * *", False),
        ("7,*/20 0 * * *", False),
        ("0 0 */2 * *", False),
        ("@daily", False),
    ],
)
def test_auto_follows_the_first_character_of_minute_and_hour(expression: str, is_wildcard: bool) -> None:
    cron = Cron(expression)
    assert cron.is_wildcard is is_wildcard
    assert cron.effective_gap == ("skip" if is_wildcard else "after")
    assert cron.effective_fold == ("both" if is_wildcard else "first")
