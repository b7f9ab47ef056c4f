"""The rules for clock changes, one by one, and the faults that users of other schedulers met."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from django_reliable_jobs.recurrence import Cron, fires
from django_reliable_jobs.recurrence.clock_change_notes import ClockChangeNote
from django_reliable_jobs.recurrence.clock_changes import Span, span_at


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def berlin(expression: str, **rules: str) -> Cron:
    return Cron(expression, timezone="Europe/Berlin", **rules)  # type: ignore[arg-type]


def on(cron: Cron, day: str) -> list[str]:
    """The fires of one local day, as UTC times."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(cron.timezone))
    end = start + timedelta(days=1)
    tick = timedelta(microseconds=1)
    return [f"{fire:%H:%M}" for fire in cron.between(start - tick, end - tick)]


SPRING, AUTUMN = "2026-03-29", "2026-10-25"


@pytest.mark.parametrize(
    ("rule", "times"), [("auto", ["01:00"]), ("after", ["01:00"]), ("shift", ["01:30"]), ("skip", [])]
)
def test_a_skipped_time_follows_on_gap(rule: str, times: list[str]) -> None:
    assert on(berlin("30 2 * * *", on_gap=rule), SPRING) == times


@pytest.mark.parametrize(
    ("rule", "times"),
    [("auto", ["00:30"]), ("first", ["00:30"]), ("second", ["01:30"]), ("both", ["00:30", "01:30"])],
)
def test_a_repeated_time_follows_on_fold(rule: str, times: list[str]) -> None:
    assert on(berlin("30 2 * * *", on_fold=rule), AUTUMN) == times


@pytest.mark.parametrize("expression", ["15,45 2 * * *", "0-59 2 * * *"])
def test_times_that_land_on_one_instant_are_one_fire(expression: str) -> None:
    assert on(berlin(expression, on_gap="after"), SPRING) == ["01:00"]
    assert on(berlin("0,30 2,3 * * *", on_gap="shift"), SPRING) == ["01:00", "01:30"]
    assert on(berlin("59 2 * * *", on_gap="shift"), SPRING) == ["01:59"]


def test_shifted_times_come_in_the_order_of_the_instants() -> None:
    assert on(berlin("50 2,3 * * *", on_gap="shift"), SPRING) == ["01:50"]
    assert on(berlin("50 2 * * *", on_gap="shift"), SPRING) == ["01:50"]
    assert on(berlin("10,50 2,3 * * *", on_gap="shift"), SPRING) == ["01:10", "01:50"]
    cron = berlin("40 2-4 * * *", on_gap="shift")
    assert cron.next_after(at("2026-03-29T01:10")) == at("2026-03-29T01:40")
    assert cron.last_before(at("2026-03-29T01:40")) == at("2026-03-28T03:40")


def test_the_edges_of_a_change_are_ordinary_times() -> None:
    assert on(berlin("0 2 * * *", on_gap="skip"), SPRING) == []
    assert on(berlin("0 3 * * *", on_gap="skip"), SPRING) == ["01:00"]
    assert on(berlin("59 1 * * *", on_gap="skip"), SPRING) == ["00:59"]
    assert on(berlin("0 2 * * *", on_fold="both"), AUTUMN) == ["00:00", "01:00"]
    assert on(berlin("0 3 * * *", on_fold="both"), AUTUMN) == ["02:00"]
    assert on(berlin("59 1 * * *", on_fold="both"), AUTUMN) == ["23:59"]


def test_an_hourly_run_keeps_its_pace_through_both_changes() -> None:
    for day, hours in ((SPRING, 23), (AUTUMN, 25)):
        start = at(day) - timedelta(hours=1)
        runs = list(berlin("0 * * * *").between(start, start + timedelta(hours=48)))
        assert {later - earlier for earlier, later in pairwise(runs)} == {timedelta(hours=1)}
        assert len(on(berlin("0 * * * *"), day)) == hours


def test_a_daily_run_happens_once_on_each_day_of_twenty_years() -> None:
    runs = list(berlin("30 2 * * *").between(at("2015-01-01"), at("2035-01-01")))
    assert len(runs) == 7305
    assert all(later > earlier for earlier, later in pairwise(runs))
    assert len({run.astimezone(ZoneInfo("Europe/Berlin")).date() for run in runs}) == 7305


def test_no_extra_run_of_even_hours_in_the_gap() -> None:
    new_york = Cron("0 */2 * * *", timezone="America/New_York")
    start = at("2026-03-08T04:00")
    assert [f"{run:%H}" for run in islice(new_york.between(start, at("2027-01-01")), 3)] == ["05", "08", "10"]


def test_a_run_moved_past_midnight_still_belongs_to_its_day() -> None:
    nuuk = Cron("30 23 * * sat", timezone="America/Nuuk")  # 23:00 on Saturday becomes Sunday 00:00
    assert nuuk.next_after(at("2024-03-30T12:00")) == at("2024-03-31T01:00")
    assert nuuk.next_after(at("2024-03-31T01:00")) == at("2024-04-07T00:30")


def test_a_search_backwards_takes_as_many_steps_after_years_as_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[datetime] = []

    def counted(zone: str, instant: datetime) -> Span:
        looked_at.append(instant)
        return span_at(zone, instant)

    cron = berlin("30 2 29 2 *")
    monkeypatch.setattr(fires, "span_at", counted)
    assert cron.last_before(at("2027-12-31")) == at("2024-02-29T01:30")
    assert cron.next_after(at("2024-03-01")) == at("2028-02-29T01:30")
    assert len(looked_at) <= 6


def test_more_than_a_hundred_missed_runs_are_no_trouble() -> None:
    cron, downtime = berlin("* * * * *"), at("2026-11-01")
    assert cron.last_before(downtime) == downtime - timedelta(minutes=1)
    assert sum(1 for _ in cron.between(downtime - timedelta(days=7), downtime)) == 7 * 24 * 60


def test_moments_far_away_end_in_none_not_in_an_error() -> None:
    cron = berlin("30 2 * * *")
    assert cron.next_after(datetime(9999, 12, 31, tzinfo=UTC)) is None
    assert cron.last_before(datetime(1, 1, 2, tzinfo=UTC)) is None
    assert cron.next_after(datetime(1, 1, 2, tzinfo=UTC)) == at("1900-01-01T01:30")
    last = cron.last_before(datetime(9999, 12, 31, tzinfo=UTC))
    assert last is not None
    assert last.year == 9899


def test_a_moment_in_another_zone_is_the_same_moment() -> None:
    cron = berlin("30 2 * * *")
    local = datetime(2026, 10, 25, 2, 45, tzinfo=ZoneInfo("Europe/Berlin"))
    assert cron.next_after(local) == cron.next_after(local.astimezone(ZoneInfo("Asia/Tokyo")))
    second_pass = berlin("50 2 * * *", on_fold="both").next_after(local.replace(fold=1))
    assert second_pass == at("2026-10-25T01:50")


def notes(cron: Cron, after: str, until: str) -> list[ClockChangeNote]:
    return list(cron.clock_change_notes(at(after), at(until)))


@pytest.mark.parametrize(
    ("rule", "runs_at", "outcome"),
    [
        ("after", ("2026-03-29T01:00",), "will run at 03:00"),
        ("shift", ("2026-03-29T01:30",), "will run at 03:30"),
        ("skip", (), "will not run"),
    ],
)
def test_a_note_on_a_skipped_time(rule: str, runs_at: tuple[str, ...], outcome: str) -> None:
    (note,) = notes(berlin("30 2 * * *", on_gap=rule), "2026-01-01", "2026-06-01")
    assert (note.kind, note.rule, note.timezone) == ("gap", rule, "Europe/Berlin")
    assert note.local_time == datetime(2026, 3, 29, 2, 30)
    assert note.runs_at == tuple(map(at, runs_at))
    assert note.changes_at == at("2026-03-29T01:00")
    assert note.message == f"02:30 does not exist on 29 March 2026 in Europe/Berlin: {outcome}"


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        ("first", "will run only the first time (00:30 UTC)"),
        ("second", "will run only the second time (01:30 UTC)"),
        ("both", "will run both times (00:30 UTC and 01:30 UTC)"),
    ],
)
def test_a_note_on_a_repeated_time(rule: str, outcome: str) -> None:
    (note,) = notes(berlin("30 2 * * *", on_fold=rule), "2026-06-01", "2026-12-01")
    assert (note.kind, note.rule) == ("fold", rule)
    assert note.message == f"02:30 happens twice on 25 October 2026 in Europe/Berlin: {outcome}"


def test_notes_name_another_date_and_seconds_where_there_are_some() -> None:
    apia = Cron("0 9 * * fri", timezone="Pacific/Apia")
    (note,) = notes(apia, "2011-12-01", "2012-01-01")
    assert note.message == (
        "09:00 does not exist on 30 December 2011 in Pacific/Apia: will run at 00:00 on 31 December 2011"
    )
    monrovia = Cron("15 0 * * *", timezone="Africa/Monrovia")
    (note,) = notes(monrovia, "1972-01-01", "1972-02-01")
    assert note.message.endswith("will run at 00:44:30")


def test_there_are_notes_only_on_runs_that_are_touched() -> None:
    assert notes(berlin("30 12 * * *"), "2026-01-01", "2030-01-01") == []
    assert notes(berlin("30 2 * * mon"), "2026-01-01", "2030-01-01") == []
    assert notes(Cron("30 2 * * *"), "2026-01-01", "2030-01-01") == []
    quarter_hours = notes(berlin("*/15 * * * *"), "2026-01-01", "2027-01-01")
    assert [note.kind for note in quarter_hours] == ["gap"] * 4 + ["fold"] * 4
    # The range is of the changes: after is excluded, until is included.
    assert len(notes(berlin("30 2 * * *"), "2026-03-29T01:00", "2026-10-25T01:00")) == 1
    assert len(notes(berlin("30 2 * * *"), "2026-03-29T00:59", "2026-10-25T00:59")) == 1


@pytest.mark.parametrize("gap", ["after", "shift", "skip"])
@pytest.mark.parametrize("fold", ["first", "second", "both"])
def test_notes_say_what_the_fires_are(gap: str, fold: str) -> None:
    cron = Cron("*/7 1,2 * * *", timezone="Antarctica/Troll", on_gap=gap, on_fold=fold)  # type: ignore[arg-type]
    start, end = at("2026-01-01"), at("2028-01-01")
    runs = set(cron.between(start, end))
    touched = list(cron.clock_change_notes(start, end))
    assert len(touched) == 4 * 18
    # The clock jumps between 01:00 and 03:00, by two hours: just the hours of the expression.
    for change in {note.changes_at for note in touched}:
        around = {run for run in runs if -timedelta(hours=2) <= run - change < timedelta(hours=2)}
        assert around == {run for note in touched if note.changes_at == change for run in note.runs_at}
