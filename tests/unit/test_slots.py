"""Which slots become jobs, and which get which reason: tables written by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from django_reliable_jobs import slots
from django_reliable_jobs.recurrence import Cron, Every, Once
from django_reliable_jobs.slots import Dropped, LiveJobs, Policy, Timeline, decide, jitter_of

HOURLY = Timeline(Cron("0 * * * *"))
# Down from Monday 11:30 to Thursday 12:00:20: 73 slots, from Monday 12:00 to Thursday 12:00, which is on time.
DOWN = datetime(2026, 3, 2, 11, 30, tzinfo=UTC)
UP = datetime(2026, 3, 5, 12, 0, 20, tzinfo=UTC)
UP_LATE = UP + timedelta(minutes=20)  # nothing is on time


def at(day: int, hour: int) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=UTC)


def show(decision: slots.Decision) -> tuple[str, list[str]]:
    """The decision in short: "d5h12 +2" is the slot of day 5, 12:00, and two earlier ones in a row."""
    jobs = decision.jobs
    kept = f"d{jobs[-1].day}h{jobs[-1].hour} +{len(jobs) - 1}" if jobs else "-"
    if jobs:
        assert jobs[-1] - jobs[0] == timedelta(hours=len(jobs) - 1)
    return kept, [
        f"{each.reason} {each.count} d{each.first.day}h{each.first.hour}-d{each.last.day}h{each.last.hour}"
        for each in decision.dropped
    ]


# catch_up, start deadline in hours, back at -> kept, dropped. The deadline of 5 h keeps the slots from 8:00 (UP: at
# 12:00:20 the one of 7:00 is 5 h and 20 s old) on; that of 15 minutes keeps none when it is 12:20:20.
AFTER_THREE_DAYS = [
    ("none", None, UP, "d5h12 +0", ["misfire 72 d2h12-d5h11"]),
    ("none", None, UP_LATE, "-", ["misfire 73 d2h12-d5h12"]),
    ("none", 5, UP, "d5h12 +0", ["deadline 68 d2h12-d5h7", "misfire 4 d5h8-d5h11"]),
    ("none", 5, UP_LATE, "-", ["deadline 68 d2h12-d5h7", "misfire 5 d5h8-d5h12"]),
    ("none", 0.25, UP_LATE, "-", ["deadline 73 d2h12-d5h12"]),
    ("latest", None, UP, "d5h12 +0", ["misfire 72 d2h12-d5h11"]),
    ("latest", None, UP_LATE, "d5h12 +0", ["misfire 72 d2h12-d5h11"]),
    ("latest", 5, UP, "d5h12 +0", ["deadline 68 d2h12-d5h7", "misfire 4 d5h8-d5h11"]),
    ("latest", 5, UP_LATE, "d5h12 +0", ["deadline 68 d2h12-d5h7", "misfire 4 d5h8-d5h11"]),
    ("latest", 0.25, UP_LATE, "-", ["deadline 73 d2h12-d5h12"]),
    ("all", None, UP, "d5h12 +72", []),
    ("all", None, UP_LATE, "d5h12 +72", []),
    ("all", 5, UP, "d5h12 +4", ["deadline 68 d2h12-d5h7"]),
    ("all", 5, UP_LATE, "d5h12 +4", ["deadline 68 d2h12-d5h7"]),
    ("all", 0.25, UP_LATE, "-", ["deadline 73 d2h12-d5h12"]),
]


def hours(number: float | None) -> timedelta | None:
    return None if number is None else timedelta(hours=number)


@pytest.mark.parametrize(("catch_up", "deadline", "now", "kept", "dropped"), AFTER_THREE_DAYS)
@pytest.mark.parametrize("overlap", ["allow", "skip", "queue"])
def test_after_three_days_of_downtime_without_a_live_job(
    overlap: str, catch_up: str, deadline: float | None, now: datetime, kept: str, dropped: list[str]
) -> None:
    policy = Policy(overlap=overlap, catch_up=catch_up, start_deadline=hours(deadline))  # type: ignore[arg-type]
    assert show(decide(HOURLY, DOWN, now, policy, LiveJobs())) == (kept, dropped)


@pytest.mark.parametrize(("catch_up", "deadline", "now", "kept", "dropped"), AFTER_THREE_DAYS)
def test_replace_keeps_the_newest_of_what_is_caught_up(
    catch_up: str, deadline: float | None, now: datetime, kept: str, dropped: list[str]
) -> None:
    policy = Policy(overlap="replace", catch_up=catch_up, start_deadline=hours(deadline))  # type: ignore[arg-type]
    decision = decide(HOURLY, DOWN, now, policy, LiveJobs(begun=1))
    if kept == "d5h12 +72":
        kept, dropped = "d5h12 +0", [*dropped, "replaced 72 d2h12-d5h11"]
    if kept == "d5h12 +4":
        kept, dropped = "d5h12 +0", [*dropped, "replaced 4 d5h8-d5h11"]
    assert show(decision) == (kept, dropped)
    assert decision.replaces is (kept != "-")


WITH_LIVE_JOBS = [
    # overlap, begun, waiting -> kept of catch_up=all with a deadline of 5 h, dropped for overlap
    ("allow", 1, 1, "d5h12 +4", None),
    ("skip", 1, 0, "-", "overlap 5 d5h8-d5h12"),
    ("skip", 0, 1, "-", "overlap 5 d5h8-d5h12"),
    ("queue", 1, 0, "d5h12 +4", None),
    ("queue", 0, 1, "-", "overlap 5 d5h8-d5h12"),
    ("queue", 1, 1, "-", "overlap 5 d5h8-d5h12"),
]


@pytest.mark.parametrize(("overlap", "begun", "waiting", "kept", "dropped"), WITH_LIVE_JOBS)
def test_live_jobs_speak_after_catch_up(overlap: str, begun: int, waiting: int, kept: str, dropped: str | None) -> None:
    policy = Policy(overlap=overlap, catch_up="all", start_deadline=hours(5))  # type: ignore[arg-type]
    decision = decide(HOURLY, DOWN, UP, policy, LiveJobs(begun, waiting))
    assert show(decision) == (kept, ["deadline 68 d2h12-d5h7", *([dropped] if dropped else [])])


def test_every_slot_has_a_job_or_a_reason_whatever_the_policy() -> None:
    due = set(HOURLY.recurrence.between(DOWN, UP))
    for overlap in ("allow", "skip", "queue", "replace"):
        for catch_up in ("none", "latest", "all"):
            for deadline in (None, 0.001, 1, 5, 1000):
                for live in (LiveJobs(), LiveJobs(1, 0), LiveJobs(0, 1)):
                    policy = Policy(
                        overlap=overlap,  # type: ignore[arg-type]
                        catch_up=catch_up,  # type: ignore[arg-type]
                        catch_up_limit=10,
                        start_deadline=hours(deadline),
                    )
                    decision = decide(HOURLY, DOWN, UP, policy, live)
                    told = [*decision.jobs]
                    for each in decision.dropped:
                        in_range = [slot for slot in due if each.first <= slot <= each.last]
                        assert len(in_range) == each.count
                        told += in_range
                    assert len(told) == len(due) and set(told) == due
                    assert decision.newest == max(due)


def test_all_is_capped_and_keeps_the_newest() -> None:
    decision = decide(HOURLY, DOWN, UP, Policy(catch_up="all", catch_up_limit=3), LiveJobs())
    assert show(decision) == ("d5h12 +2", ["limit 70 d2h12-d5h9"])


def test_nothing_is_due_between_two_slots_and_when_the_clock_jumps_back() -> None:
    for now in (at(5, 12) + timedelta(minutes=59), at(5, 12), at(5, 11), at(1, 0)):
        assert decide(HOURLY, at(5, 12), now, Policy(catch_up="all"), LiveJobs()) == slots.NOTHING_DUE


def test_a_slot_is_due_at_its_own_moment() -> None:
    assert decide(HOURLY, at(5, 11), at(5, 12), Policy(), LiveJobs()).jobs == (at(5, 12),)


@pytest.mark.parametrize(("late", "kept"), [(60, 1), (61, 0)])
def test_grace_is_how_late_is_still_on_time(late: int, kept: int) -> None:
    decision = decide(HOURLY, at(5, 11), at(5, 12) + timedelta(seconds=late), Policy(catch_up="none"), LiveJobs())
    assert len(decision.jobs) == kept


@pytest.mark.parametrize(("late", "kept"), [(300, 1), (301, 0)])
def test_the_deadline_counts_from_the_slot(late: int, kept: int) -> None:
    policy = Policy(start_deadline=timedelta(minutes=5))
    decision = decide(HOURLY, at(5, 11), at(5, 12) + timedelta(seconds=late), policy, LiveJobs())
    assert len(decision.jobs) == kept


def test_slots_lie_from_start_to_end_both_included() -> None:
    timeline = Timeline(HOURLY.recurrence, starts_at=at(5, 3), ends_at=at(5, 6))
    decision = decide(timeline, DOWN, UP, Policy(catch_up="all"), LiveJobs())
    assert decision.jobs == (at(5, 3), at(5, 4), at(5, 5), at(5, 6))
    assert timeline.next_after(at(5, 6)) is None
    assert timeline.last_before(at(5, 3)) is None
    assert timeline.first_few(at(5, 4), 5) == [at(5, 5), at(5, 6)]
    assert decide(timeline, at(5, 6), UP, Policy(catch_up="all"), LiveJobs()) == slots.NOTHING_DUE


def test_once_is_due_once() -> None:
    timeline = Timeline(Once(at=at(4, 4)))
    assert decide(timeline, DOWN, UP, Policy(), LiveJobs()).jobs == (at(4, 4),)
    assert decide(timeline, at(4, 4), UP, Policy(), LiveJobs()) == slots.NOTHING_DUE


@pytest.mark.parametrize("recurrence", [Every(seconds=1), Cron("* * * * *")])
def test_a_year_of_missed_slots_is_decided_at_once(recurrence: Every | Cron) -> None:
    before = time.thread_time()
    decision = decide(Timeline(recurrence), at(5, 0) - timedelta(days=365), at(5, 0), Policy(), LiveJobs())
    assert time.thread_time() - before < 1
    [dropped] = decision.dropped
    assert dropped.count == (31_535_999 if isinstance(recurrence, Every) else None)  # None: too many to be walked


def test_both_passes_of_a_repeated_hour_are_slots() -> None:
    timeline = Timeline(Cron("30 * * * *", timezone="Europe/Berlin"))  # wildcard hour: both
    night = datetime(2026, 10, 24, 23, 45, tzinfo=UTC)
    decision = decide(timeline, night, night + timedelta(hours=2), Policy(catch_up="all"), LiveJobs())
    assert [slot.astimezone(UTC).hour for slot in decision.jobs] == [0, 1]  # 02:30 and 02:30


def test_what_is_dropped_without_a_decision_is_one_range() -> None:
    dropped = slots.drop_all(HOURLY, DOWN, UP, "edited")
    assert dropped == [Dropped(at(2, 12), at(5, 12), 73, "skipped", "edited")]
    assert slots.drop_all(HOURLY, at(5, 12), UP, "edited") == []


def test_jitter_is_later_only_within_its_bound_and_the_same_everywhere() -> None:
    span = timedelta(minutes=2)
    moments = [jitter_of(7, at(5, 0) + timedelta(hours=number), span) for number in range(500)]
    assert all(timedelta() <= each <= span for each in moments)
    assert max(moments) > span * 0.95 and min(moments) < span * 0.05
    assert jitter_of(7, at(5, 0), span) == jitter_of(7, at(5, 0), span) == timedelta(seconds=99, milliseconds=627)
    assert jitter_of(8, at(5, 0), span) != jitter_of(7, at(5, 0), span)
    assert jitter_of(7, at(5, 0), None) == timedelta()
