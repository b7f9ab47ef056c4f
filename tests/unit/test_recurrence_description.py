"""Descriptions say what runs: some in full, and random ones read back into what they were made of."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import pytest

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence import Cron

MONTHS = "January February March April May June July August September October November December"
WEEKDAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday"
ORDINALS = "first second third fourth fifth"

AFTER = "Times that the clock skips run once, at the first moment after the change."
SKIP = "Times that the clock skips do not run."
SHIFT = "Times that the clock skips run as much later as the clock jumped."
FIRST = "Times that occur twice run the first time only."
BOTH = "Times that occur twice run both times."


@pytest.mark.parametrize(
    ("expression", "zone", "description"),
    [
        ("* * * * *", "UTC", "Every minute, every day (UTC)."),
        (
            "*/15 * * * *",
            "UTC",
            "Every 15 minutes, counted from the full hour, every day (UTC).",
        ),
        ("*/25 * * * *", "UTC", "At minutes 0, 25 and 50 of every hour, every day (UTC)."),
        ("5 * * * *", "UTC", "At minute 5 of every hour, every day (UTC)."),
        ("0 9-17 * * 1-5", "UTC", "Every hour from 09:00 to 17:00, Monday to Friday (UTC)."),
        ("*/20 9-17 * * *", "UTC", "Every 20 minutes from 09:00 to 17:40, every day (UTC)."),
        ("* 2 * * *", "UTC", "Every minute from 02:00 to 02:59, every day (UTC)."),
        ("7 */2 * * *", "UTC", "Every 2 hours from 00:07 to 22:07, every day (UTC)."),
        (
            "7,9 22-5 * * *",
            "UTC",
            "At minutes 7 and 9 of the hours 00 to 05, 22 and 23, every day (UTC).",
        ),
        ("0 8,12 1 * *", "UTC", "At 08:00 and 12:00, on day 1 of the month (UTC)."),
        ("0 8 1,15,L * *", "UTC", "At 08:00, on days 1 and 15 and the last day of the month (UTC)."),
        ("0 8 L * *", "UTC", "At 08:00, on the last day of the month (UTC)."),
        (
            "0 8 29-31 * *",
            "UTC",
            "At 08:00, on days 29 to 31 of the month (days that a month lacks are left out) (UTC).",
        ),
        (
            "0 8 15W jan-mar *",
            "UTC",
            "At 08:00, on the weekday (Monday to Friday) nearest to day 15 of the month, "
            "only in January to March (UTC).",
        ),
        (
            "0 8 31W * *",
            "UTC",
            "At 08:00, on the weekday (Monday to Friday) nearest to day 31 of the month or, "
            "in a shorter month, to its last day (UTC).",
        ),
        ("0 8 13 * 5", "UTC", "At 08:00, on day 13 of the month and also on Friday (UTC)."),
        ("0 8 * * 6,0", "UTC", "At 08:00, on Saturday and Sunday (UTC)."),
        (
            "0 8 * 2,8 2#1,L5",
            "UTC",
            "At 08:00, on the first Tuesday of the month and the last Friday of the month, "
            "only in February and August (UTC).",
        ),
        ("30 2 * * *", "Asia/Tokyo", "At 02:30, every day (Asia/Tokyo)."),
        ("30 2 * * *", "Europe/Berlin", f"At 02:30, every day (Europe/Berlin). {AFTER} {FIRST}"),
        ("30 12 * * *", "Europe/Berlin", "At 12:30, every day (Europe/Berlin)."),
        ("0 2 * * *", "America/New_York", f"At 02:00, every day (America/New_York). {AFTER}"),
        ("0 1 * * *", "America/New_York", f"At 01:00, every day (America/New_York). {FIRST}"),
        (
            "*/30 * * * *",
            "Europe/Berlin",
            f"Every 30 minutes, counted from the full hour, every day (Europe/Berlin). {SKIP} {BOTH}",
        ),
        (
            "30 2 29 3 *",
            "Europe/Berlin",
            "At 02:30, on day 29 of the month (days that a month lacks are left out), "
            f"only in March (Europe/Berlin). {AFTER}",
        ),
    ],
)
def test_an_expression_is_described(expression: str, zone: str, description: str) -> None:
    assert Cron(expression, timezone=zone).describe() == description


def test_the_rules_that_were_chosen_are_described() -> None:
    cron = Cron("30 2 * * *", timezone="Europe/Berlin", on_gap="shift", on_fold="both")
    assert cron.describe() == f"At 02:30, every day (Europe/Berlin). {SHIFT} {BOTH}"


def test_a_description_reads_back_as_what_runs() -> None:
    rng = random.Random(11)
    for _ in range(3_000):
        expression = draw(rng)
        try:
            cron = Cron(expression)
        except InvalidRecurrence as error:
            assert "never comes" in str(error)
            continue
        assert read_back(cron.describe()) == cron.canonical, (expression, cron.describe())


def draw(rng: random.Random) -> str:
    def item(low: int, high: int) -> str:
        a, b = sorted(rng.choices(range(low, high + 1), k=2))
        step = rng.choice([1, 2, 3, 4, 5, 6])
        return rng.choice([f"{a}", f"{a},{b}", f"{a}-{b}", f"{a}-{b}/{step}", f"*/{step}", "*"])

    number, weekday, nth = rng.randint(1, 31), rng.randint(0, 6), rng.randint(1, 5)
    days, weekdays = rng.choice(
        [
            ("*", "*"),
            (item(1, 31), item(0, 6)),
            (rng.choice(["L", f"{number},L", f"{number}W"]), "*"),
            ("*", rng.choice([f"{weekday}#{nth}", f"L{weekday}", f"{weekday}#{nth},L{weekday}"])),
        ]
    )
    return f"{item(0, 59)} {item(0, 23)} {days} {rng.choice(['*', item(1, 12)])} {weekdays}"


def read_back(description: str) -> str:
    """Turn a description into the five canonical fields."""
    sentence = re.fullmatch(r"(.+?), (every day|on .+?|\w+day to \w+day)(?:, only in (.+?))? \(UTC\)\.", description)
    assert sentence is not None, description
    times, days, months = sentence.groups()
    month_numbers = values(months, MONTHS.split(), 1) if months else list(range(1, 13))
    return " ".join([*read_times(times), read_days(days)[0], field(month_numbers, 12), read_days(days)[1]])


def read_times(text: str) -> tuple[str, str]:
    if match := re.fullmatch(r"At ((?:\d\d:\d\d(?:, | and )?)+)", text):
        pairs = [time.split(":") for time in re.findall(r"\d\d:\d\d", match[1])]
        hours, minutes = ({int(pair[n]) for pair in pairs} for n in (0, 1))
        assert len(pairs) == len(hours) * len(minutes)
        return field(minutes, 60), field(hours, 24)
    if match := re.fullmatch(r"Every (\d+ )?(minutes?|hours?) from (\d+):(\d+) to (\d+):(\d+)", text):
        pace, (h1, m1, h2, m2) = int(match[1] or 1), map(int, match.groups()[2:])
        if match[2].startswith("hour"):
            assert m1 == m2
            return str(m1), field(range(h1, h2 + 1, pace), 24)
        assert (m1, m2) == (0, 60 - pace)
        return field(range(0, 60, pace), 60), field(range(h1, h2 + 1), 24)
    if text == "Every minute":
        return "*", "*"
    if match := re.fullmatch(r"Every (\d+) minutes, counted from the full hour", text):
        return field(range(0, 60, int(match[1])), 60), "*"
    match = re.fullmatch(r"At minutes? (.+) of (?:every hour|the hours (.+))", text)
    assert match is not None, text
    return field(values(match[1]), 60), field(values(match[2]) if match[2] else range(24), 24)


def read_days(text: str) -> tuple[str, str]:
    if text == "every day":
        return "*", "*"
    days, _, weekdays = text.removeprefix("on ").partition(" and also on ")
    if "nearest" in days:
        return f"{re.findall(r'[0-9]+', days)[0]}W", "*"
    if " of the month" not in days:
        return "*", read_weekdays(days)
    if re.search(r"(first|second|third|fourth|fifth|last) \w+day of", days):
        return "*", read_weekdays(days)
    lacking = " (days that a month lacks are left out)"
    named = days.removesuffix(lacking).removesuffix(" of the month")
    last = ["L"] if named.endswith("the last day") else []
    named = named.removesuffix("the last day").removesuffix(" and ")
    numbers = values(re.sub(r"^days? ", "", named)) if named else []
    assert (lacking in days) is (bool(numbers) and max(numbers) > 28)
    return ",".join([*map(str, numbers), *last]), read_weekdays(weekdays) if weekdays else "*"


def read_weekdays(text: str) -> str:
    special = re.findall(r"the (\w+) (\w+day) of the month", text)
    if not special:
        numbers = values(text, WEEKDAYS.split(), 0)
        return field(numbers, 7)
    tokens = []
    for which, name in special:
        weekday = WEEKDAYS.split().index(name)
        tokens.append(f"L{weekday}" if which == "last" else f"{weekday}#{ORDINALS.split().index(which) + 1}")
    return ",".join(sorted(tokens))


def values(text: str, names: list[str] | None = None, low: int = 0) -> list[int]:
    """Read "1, 3 to 5 and 7"; a run may pass the end of the week, whose last day is Sunday."""
    found: list[int] = []
    for part in re.split(r", | and ", text):
        ends = [names.index(word) + low if names else int(word) for word in part.split(" to ")]
        if ends[-1] < ends[0]:
            assert names == WEEKDAYS.split() and ends[-1] == 0
            ends[-1] = 7
        found.extend(number % 7 if names == WEEKDAYS.split() else number for number in range(ends[0], ends[-1] + 1))
    return found


def field(numbers: Iterable[int], size: int) -> str:
    ordered = sorted(set(numbers))
    return "*" if len(ordered) == size else ",".join(map(str, ordered))
