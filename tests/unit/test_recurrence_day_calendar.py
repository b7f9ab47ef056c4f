"""What croniter is trusted with, the day calendar, against a plain one."""

from __future__ import annotations

import calendar
import random
import threading
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from django_reliable_jobs.recurrence import day_calendar
from django_reliable_jobs.recurrence.day_calendar import first_day_from, last_day_until

DAY = timedelta(days=1)


def matches(days: str, months: str, weekdays: str, day: date) -> bool:
    if months != "*" and str(day.month) not in months.split(","):
        return False
    rules = [
        any(rule(item, day) for item in field.split(","))
        for field, rule in ((days, matches_day), (weekdays, matches_weekday))
        if field != "*"
    ]
    return any(rules) if rules else True


def matches_day(item: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if item == "L":
        return day.day == last
    if item.endswith("W"):
        wanted = day.replace(day=min(int(item[:-1]), last))
        near = [wanted, wanted - DAY, wanted + DAY, wanted - 2 * DAY, wanted + 2 * DAY]
        return day == next(d for d in near if d.month == day.month and d.weekday() < 5)
    return day.day == int(item)


def matches_weekday(item: str, day: date) -> bool:
    weekday, last = day.isoweekday() % 7, calendar.monthrange(day.year, day.month)[1]
    if item.startswith("L"):
        return weekday == int(item[1:]) and day.day + 7 > last
    if "#" in item:
        return weekday == int(item[0]) and (day.day - 1) // 7 + 1 == int(item[2:])
    return weekday == int(item)


def draw(rng: random.Random) -> tuple[str, str, str]:
    def some(values: Sequence[Any], at_most: int) -> str:
        return ",".join(map(str, sorted(rng.sample(values, rng.randint(1, at_most)))))

    numbered = [f"{weekday}#{n}" for weekday in range(7) for n in range(1, 6)]
    days, weekdays = rng.choice(
        [
            (some(range(1, 32), 30), "*"),
            (some(range(1, 32), 3), some(range(7), 6)),
            ("*", some(range(7), 6)),
            ("L", "*"),
            (f"{some(range(1, 32), 2)},L", "*"),
            (f"{rng.randint(1, 31)}W", "*"),
            ("*", some(numbered, 3)),
            ("*", some([f"L{weekday}" for weekday in range(7)], 2)),
            ("*", f"{rng.choice(numbered)},L{rng.randint(0, 6)}"),
        ]
    )
    return days, rng.choice(["*", some(range(1, 13), 11)]), weekdays


def walk(rule: tuple[str, str, str], day: date, step: timedelta) -> date | None:
    for _ in range(366 * 41):
        if matches(*rule, day):
            return day
        day += step
    return None


def test_days_are_found_forwards_and_backwards() -> None:
    rng = random.Random(7)
    for _ in range(600):
        rule = draw(rng)
        day = date(rng.randint(1990, 2090), rng.randint(1, 12), rng.randint(1, 28))
        assert first_day_from(" ".join(rule), day) == walk(rule, day, DAY), (rule, day)
        assert last_day_until(" ".join(rule), day) == walk(rule, day, -DAY), (rule, day)


def test_the_rarest_day_is_found_across_a_century_without_leap_day() -> None:
    fifth_friday_of_february = "* 2 5#5"
    assert first_day_from(fifth_friday_of_february, date(2064, 3, 1)) == date(2092, 2, 29)
    assert first_day_from(fifth_friday_of_february, date(2092, 3, 1)) == date(2104, 2, 29)
    fifth_monday = "* 2 1#5"
    assert first_day_from(fifth_monday, date(2072, 3, 1)) == date(2112, 2, 29)
    assert last_day_until(fifth_monday, date(2112, 2, 28)) == date(2072, 2, 29)


def test_a_search_without_an_answer_ends() -> None:
    assert first_day_from("30 2 *", date(2026, 1, 1)) is None
    assert last_day_until("30 2 *", date(2026, 1, 1)) is None


def test_every_day_needs_no_croniter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_calendar, "_croniter", None)
    assert first_day_from("* * *", date(2026, 2, 28)) == date(2026, 2, 28)
    assert last_day_until("* * *", date(2026, 3, 1)) == date(2026, 3, 1)


def test_threads_do_not_share_a_croniter() -> None:
    found: dict[str, object] = {}
    threads = [
        threading.Thread(target=lambda name=name: found.update({name: day_calendar._croniter("L * *")}))
        for name in ("one", "two")
    ]
    for thread in threads:
        thread.start()
        thread.join()
    assert found["one"] is not found["two"]
    assert day_calendar._croniter("L * *") is day_calendar._croniter("L * *")


def test_parsed_calendars_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_calendar, "_PARSED_AT_MOST", 3)
    for number in range(1, 20):
        day_calendar._croniter(f"{number} * *")
    assert len(day_calendar._parsed.by_calendar) <= 3
