"""Cron against a brute-force oracle that shares no code with it.

The oracle walks the UTC time line minute by minute, reads the local clock at each, and applies the
rules to what it saw; for sparse expressions over twenty years it looks at their days only.
Expressions are drawn together with their meaning, so that it parses nothing.
"""

from __future__ import annotations

import calendar
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence import Cron
from django_reliable_jobs.recurrence.cron import OnFold, OnGap

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
GAP_RULES: tuple[OnGap, ...] = ("auto", "skip", "after", "shift")
FOLD_RULES: tuple[OnFold, ...] = ("auto", "first", "second", "both")
FIRST, LAST = datetime(2015, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)

TELLING_ZONES = """Europe/Berlin America/New_York Europe/London Europe/Dublin Australia/Lord_Howe
    Antarctica/Troll Africa/Casablanca Africa/Cairo Asia/Beirut America/Santiago America/Havana
    America/Asuncion Asia/Gaza Asia/Tehran Pacific/Chatham Pacific/Auckland Asia/Pyongyang
    America/Caracas Europe/Moscow Europe/Istanbul America/Sao_Paulo Asia/Amman America/Nuuk
    Asia/Kathmandu America/Scoresbysund Pacific/Norfolk Pacific/Fiji UTC""".split()  # noqa: SIM905  a list is a page long

# Skipped and repeated days, which came before 2015.
DAYS_CHANGED = [
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Pacific/Fakaofo", datetime(2011, 12, 30, 11, tzinfo=UTC)),
    ("Pacific/Kiritimati", datetime(1994, 12, 31, 10, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21, 12, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1969, 9, 30, 13, tzinfo=UTC)),
    ("Antarctica/Casey", datetime(1969, 1, 1, tzinfo=UTC)),
    ("Antarctica/Vostok", datetime(1994, 1, 31, 17, tzinfo=UTC)),
]


@dataclass
class Drawn:
    """An expression and what it means."""

    text: str
    minutes: set[int]
    hours: set[int]
    day_matches: Callable[[date], bool]

    def resolve(self, gap: str, fold: str) -> tuple[str, str]:
        minute, hour = self.text.split()[:2]
        auto = ("skip", "both") if "*" in (minute[0], hour[0]) else ("after", "first")
        return auto[0] if gap == "auto" else gap, auto[1] if fold == "auto" else fold

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.day_matches(wall.date())


def fires_of(drawn: Drawn, zone: ZoneInfo, gap: str, fold: str, start: datetime, end: datetime) -> list[datetime]:
    """The oracle: the fires with start < fire <= end, seen by walking the minutes around."""
    gap, fold = drawn.resolve(gap, fold)
    margin = 27 * HOUR if start.year < 2015 else 4 * HOUR
    seen: dict[datetime, list[datetime]] = {}
    fires: set[datetime] = set()
    moment, wall = start - margin, local(zone, start - margin)
    while moment < end + margin:
        seen.setdefault(wall, []).append(moment)
        moment, previous, wall = moment + MINUTE, wall, local(zone, moment + MINUTE)
        missing = previous + MINUTE
        while missing < wall:
            if drawn.matches(missing) and gap != "skip":
                fires.add(moment if gap == "after" else moment - MINUTE + (missing - previous))
            missing += MINUTE
    for wall, moments in seen.items():
        if drawn.matches(wall):
            chosen = {"first": moments[:1], "second": moments[-1:], "both": moments}
            fires.update(chosen[fold])
    return sorted(fire for fire in fires if start < fire <= end)


def sparse_fires_of(drawn: Drawn, zone: ZoneInfo, gap: str, fold: str) -> list[datetime]:
    """The fires from FIRST to LAST of an expression with few of them."""
    gap, fold = drawn.resolve(gap, fold)
    fires, changes = set(), changes_of(zone)
    days = [FIRST.date() + n * DAY for n in range(-2, (LAST - FIRST).days + 2)]
    times = [(hour, minute) for hour in drawn.hours for minute in drawn.minutes]
    for day in filter(drawn.day_matches, days):
        for hour, minute in times:
            wall = datetime(day.year, day.month, day.day, hour, minute)
            about = wall.replace(tzinfo=UTC)
            early, late = (local(zone, m) - m.replace(tzinfo=None) for m in (about - DAY, about + DAY))
            moments = [m for m in sorted({about - early, about - late}) if local(zone, m) == wall]
            if moments:
                fires.update({"first": moments[:1], "second": moments[-1:], "both": moments}[fold])
            elif gap == "shift":
                fires.add(about - early)
            elif gap == "after":
                fires.add(min(changes, key=lambda change: abs(change - (about - early))))
    return sorted(fire for fire in fires if FIRST < fire < LAST)


def local(zone: ZoneInfo, moment: datetime) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def changes_of(zone: ZoneInfo, first: datetime = FIRST, last: datetime = LAST) -> list[datetime]:
    changes, moment = [], first
    while moment < last:
        if moment.astimezone(zone).utcoffset() != (moment + DAY).astimezone(zone).utcoffset():
            low, high = moment, moment + DAY
            while high - low > MINUTE:
                middle = low + (high - low) // (2 * MINUTE) * MINUTE
                same = low.astimezone(zone).utcoffset() == middle.astimezone(zone).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            changes.append(high)
        moment += DAY
    return changes


def draw(rng: random.Random, hours_near: int) -> Drawn:
    minute_text, minutes = draw_field(rng, 0, 59)
    hour_text, hours = draw_field(rng, 0, 23, wraps=True)
    if rng.random() < 0.6:  # else most would miss the hours that a change touches
        hours = {(hours_near + shift) % 24 for shift in rng.sample([-1, 0, 0, 1, 2], 2)}
        hour_text = ",".join(map(str, hours))
    month_text, months = ("*", set(range(1, 13)))
    if rng.random() < 0.2:
        month_text, months = draw_field(rng, 1, 12, wraps=True, names=calendar.month_abbr)
    day_text, on_day = draw_days(rng) if rng.random() < 0.3 else ("*", None)
    special = day_text.endswith(("L", "W"))
    weekday_text, on_weekday = "*", None
    if not special and rng.random() < 0.3:
        weekday_text, on_weekday = draw_weekdays(rng, alone=on_day is None)

    def day_matches(day: date) -> bool:
        if day.month not in months:
            return False
        rules = [rule for rule in (on_day, on_weekday) if rule is not None]
        return not rules or any(rule(day) for rule in rules)

    text = f"{minute_text} {hour_text} {day_text} {month_text} {weekday_text}"
    return Drawn(text, minutes, hours, day_matches)


def draw_sparse(rng: random.Random) -> Drawn:
    hour, minute, first_month = (
        rng.choice([0, 1, 2, 2, 3, 23]),
        rng.choice([0, 15, 30]),
        rng.choice([3, 10, rng.randint(1, 12)]),
    )
    months, alone = {first_month, first_month % 12 + 1}, rng.random() < 0.5
    day_text, on_day = ("*", None) if alone else draw_days(rng)
    weekday_text, on_weekday = draw_weekdays(rng, alone=True) if alone else ("*", None)
    rule = on_day or on_weekday or (lambda day: True)
    text = f"{minute} {hour} {day_text} {','.join(map(str, months))} {weekday_text}"
    return Drawn(text, {minute}, {hour}, lambda day: day.month in months and rule(day))


def draw_field(
    rng: random.Random, low: int, high: int, wraps: bool = False, names: object = None
) -> tuple[str, set[int]]:
    size, step = high - low + 1, rng.choice([1, 2, 3, 5, 7, 10, 12])
    a, b = rng.randint(low, high), rng.randint(low, high)
    if a > b and not wraps:
        a, b = b, a
    whole = [low + (a - low + k) % size for k in range((b - a) % size + 1)]
    shown = names[a].lower() if names else str(a)  # type: ignore[index]
    return rng.choice(
        [
            ("*", set(range(low, high + 1))),
            (shown, {a}),
            (f"{a},{b}", {a, b}),
            (f"{shown}-{b}", set(whole)),
            (f"{a}-{b}/{step}", set(whole[::step])),
            (f"*/{step}", set(range(low, high + 1, step))),
            (f"{a}/{step}", set(range(a, high + 1, step))),
            (f"{a}-{b}/{step},{shown}", set(whole[::step]) | {a}),
        ]
    )


def draw_days(rng: random.Random) -> tuple[str, Callable[[date], bool] | None]:
    number = rng.randint(1, 31)
    if rng.random() < 0.25:
        return f"{number},L", lambda day: day.day in (number, length(day))
    if rng.random() < 0.3:
        return f"{number}W", lambda day: day.day == nearest(day, number)
    text, days = draw_field(rng, 1, 31)
    if text in ("*", "*/1"):
        return "?", None
    return text, lambda day: day.day in days


def draw_weekdays(rng: random.Random, alone: bool) -> tuple[str, Callable[[date], bool]]:
    a, b, n = rng.randint(0, 7), rng.randint(1, 6), rng.randint(1, 5)
    if alone and rng.random() < 0.3:
        return f"{a}#{n}", lambda day: (weekday(day), (day.day + 6) // 7) == (a % 7, n)
    if alone and rng.random() < 0.3:
        return f"L{a}", lambda day: weekday(day) == a % 7 and day.day > length(day) - 7
    if rng.random() < 0.5:
        name = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")[a]
        return f"{name},{b}", lambda day: weekday(day) in (a % 7, b)
    wanted = {(a + k) % 7 for k in range((b - a) % 7 + 1)}
    return f"{a}-{b}", lambda day: weekday(day) in wanted


def weekday(day: date) -> int:
    return day.isoweekday() % 7


def length(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def nearest(day: date, number: int) -> int:
    weekdays = [n for n in range(1, length(day) + 1) if day.replace(day=n).weekday() < 5]
    number = min(number, length(day))
    # A Saturday is nearer to its Friday, a Sunday to its Monday: no two are equally near.
    return min(weekdays, key=lambda n: abs(n - number))


def all_zones() -> list[str]:
    return sorted(available_timezones() - {"localtime", "Factory"})  # the two that Cron refuses


def check_window(rng: random.Random, zone: str, start: datetime, end: datetime) -> int:
    drawn = draw(rng, hours_near=local(ZoneInfo(zone), start + (end - start) / 2).hour)
    gap, fold = rng.choice(GAP_RULES), rng.choice(FOLD_RULES)
    try:
        cron = Cron(drawn.text, timezone=zone, on_gap=gap, on_fold=fold)
    except InvalidRecurrence as error:
        assert "never" in str(error)
        return 0
    expected = fires_of(drawn, ZoneInfo(zone), gap, fold, start, end)
    assert list(cron.between(start, end)) == expected, cron
    assert list(backwards(cron, start, end)) == expected[::-1], cron
    seconds = int((end - start).total_seconds())
    probes = [start + timedelta(seconds=rng.randrange(seconds)) for _ in range(4)]
    for probe in [*probes, *rng.sample(expected, min(2, len(expected)))]:
        later = [fire for fire in expected if fire > probe]
        earlier = [fire for fire in expected if fire < probe]
        assert not later or cron.next_after(probe) == later[0], (cron, probe)
        assert not earlier or cron.last_before(probe) == earlier[-1], (cron, probe)
    return len(expected)


def backwards(cron: Cron, start: datetime, end: datetime) -> Iterator[datetime]:
    fire = cron.last_before(end + timedelta(microseconds=1))
    while fire is not None and fire > start:
        yield fire
        fire = cron.last_before(fire)


def check_zone(rng: random.Random, zone: str, windows: int) -> int:
    changes = changes_of(ZoneInfo(zone)) or [FIRST + DAY * rng.randrange(7000)]
    chosen = [rng.choice(changes) for _ in range(windows)]
    return sum(check_window(rng, zone, at - 3 * HOUR, at + 3 * HOUR) for at in chosen)


def test_cron_agrees_with_the_oracle_around_clock_changes() -> None:
    rng = random.Random(20260329)
    zones = [*TELLING_ZONES, *rng.sample(all_zones(), 20)]
    fires = [check_zone(rng, zone, windows=30) for zone in zones]
    assert sum(fires) > 5_000


@pytest.mark.parametrize(("zone", "at"), DAYS_CHANGED)
def test_cron_agrees_with_the_oracle_around_changed_days(zone: str, at: datetime) -> None:
    rng = random.Random(zone)
    assert sum(check_window(rng, zone, at - 30 * HOUR, at + 30 * HOUR) for _ in range(10))


def test_cron_agrees_with_the_oracle_over_twenty_years() -> None:
    rng, total = random.Random(2035), 0
    for _ in range(40):
        zone, drawn = rng.choice(TELLING_ZONES), draw_sparse(rng)
        gap, fold = rng.choice(GAP_RULES), rng.choice(FOLD_RULES)
        cron = Cron(drawn.text, timezone=zone, on_gap=gap, on_fold=fold)
        expected = sparse_fires_of(drawn, ZoneInfo(zone), gap, fold)
        assert list(cron.between(FIRST, LAST)) == expected, cron
        assert list(backwards(cron, FIRST, LAST)) == expected[::-1], cron
        total += len(expected)
    assert total > 2_000


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(8))
def test_cron_agrees_with_the_oracle_in_every_zone(part: int) -> None:
    for zone in all_zones()[part::8]:
        check_zone(random.Random(zone), zone, windows=100)
