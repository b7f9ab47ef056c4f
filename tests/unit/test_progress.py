from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus

import pytest

from django_reliable_jobs import progress
from django_reliable_jobs.progress import Progress, Said

Clock = Callable[[float], None]


@pytest.fixture
def at_second(monkeypatch: pytest.MonkeyPatch) -> Clock:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def move(second: float) -> None:
        now[0] = 1000.0 + second

    return move


def test_what_is_left_out_stays_as_it_was() -> None:
    told = Progress()
    assert told.said is None
    told.say(1, 10, "begins")
    told.say(2)
    assert told.said == Said(2, 10, "begins")
    told.say(3, 12)
    told.say(4, message="")
    assert told.said == Said(4, 12, "")


def test_the_count_of_batches_keeps_the_message() -> None:
    told = Progress()
    told.say(0, message="reads")
    told.count(500, 1000, skipped=2)
    assert told.said == Said(500, 1000, "reads", 2)
    told.say(501)
    assert told.said == Said(501, 1000, "reads", 2)


@pytest.mark.parametrize("done", [-1, 1.5, "1", None, 2**63])
def test_done_is_a_whole_number(done: object) -> None:
    with pytest.raises(TypeError, match="done is a whole number from 0 to"):
        Progress().say(done)  # type: ignore[arg-type]


def test_total_is_a_whole_number_and_the_message_text() -> None:
    with pytest.raises(TypeError, match="total is a whole number"):
        Progress().say(1, "all")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="message of progress is text"):
        Progress().say(1, 2, 3)  # type: ignore[arg-type]


def test_numbers_of_other_types_are_plain_ones_as_the_database_takes_no_others() -> None:
    told = Progress()
    told.say(True, HTTPStatus.OK)
    assert told.said == Said(1, 200)
    assert told.said is not None and [type(each) for each in told.said[:2]] == [int, int]


def test_a_long_message_is_cut() -> None:
    told = Progress()
    told.say(1, message="x" * 10_000)
    assert told.said is not None
    assert len(told.said.message) == progress.MESSAGE_CHARACTERS


def test_it_is_news_once() -> None:
    told = Progress()
    assert told.news() is None
    told.say(1)
    assert told.news() == (Said(1), None)
    assert told.news() is None
    told.say(1)
    assert told.news() is not None, "said again, so alive"


def test_what_could_not_be_written_is_news_again() -> None:
    told = Progress()
    told.say(1)
    told.news()
    told.not_written()
    assert told.news() == (Said(1), None)


def test_the_rate_counts_from_where_the_attempt_began(at_second: Clock) -> None:
    told = Progress()
    told.say(9000, 10_000)  # of earlier attempts
    for second in (1, 2, 3):
        at_second(second)
        told.say(9000 + 50 * second)
        assert told.news() == (Said(9000 + 50 * second, 10_000), 50.0)


def test_the_rate_is_the_mean_at_first_and_follows_a_change_in_half_a_minute(at_second: Clock) -> None:
    told, rate = Progress(), None
    told.say(0)
    at_second(0.1)
    told.say(100)
    assert told.news() == (Said(100), pytest.approx(1000))
    for second in range(1, 301):
        at_second(second)
        told.say(100 + 10 * second)
        _, rate = told.news() or (None, None)
        if second == 10:
            assert rate == pytest.approx(20, rel=0.1), "one fast moment does not colour the first ten seconds"
    assert rate == pytest.approx(10, rel=0.01)
    for second in range(301, 361):
        at_second(second)
        told.say(3100 + 100 * (second - 300))
        _, rate = told.news() or (None, None)
    assert rate == pytest.approx(100, rel=0.15)


def test_a_job_that_starts_over_has_no_negative_rate(at_second: Clock) -> None:
    told = Progress()
    told.say(100)
    at_second(1)
    told.say(0)
    assert told.news() == (Said(0), None)
    at_second(2)
    told.say(10)
    assert told.news() is not None


def test_it_is_told_by_one_thread_and_taken_by_others() -> None:
    told = Progress()
    taken: list[int] = []

    def take() -> None:
        while not taken or taken[-1] < 50_000:
            if (news := told.news()) is not None:
                taken.append(news[0].done)

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    for done in range(1, 50_001):
        told.say(done, 50_000)
    taker.join(timeout=60)
    assert taken[-1] == 50_000
    assert taken == sorted(set(taken))
