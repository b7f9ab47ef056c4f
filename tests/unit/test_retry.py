"""Whether and when a failed job is tried again."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from typing import Any

import pytest

from django_reliable_jobs import exponential
from django_reliable_jobs.exceptions import InvalidTask
from django_reliable_jobs.retry import LONGEST_SPAN, RetryPolicy, as_seconds


def delays(backoff: exponential, uniform: float = 0.0, attempts: int = 6) -> list[float]:
    return [backoff(attempt, uniform=lambda: uniform) for attempt in range(1, attempts + 1)]


def test_the_first_failure_waits_first_and_each_further_one_factor_times_longer() -> None:
    assert delays(exponential(first=5, factor=3, maximum=1000)) == [5, 15, 45, 135, 405, 1000]


def test_wrong_words_are_told_with_those_that_are_right() -> None:
    with pytest.raises(
        InvalidTask, match=r"exponential\(\) has no argument 'max': did you mean 'maximum'\? it takes first"
    ):
        exponential(max=60)  # type: ignore[call-arg]
    with pytest.raises(InvalidTask, match=r"takes only first, factor, maximum, jitter without a name"):
        exponential(1, 2, 3, 0.5, 5)  # type: ignore[call-arg]


def test_a_factor_of_one_keeps_the_delay() -> None:
    assert delays(exponential(first=7, factor=1)) == [7] * 6


def test_it_never_waits_longer_than_maximum_and_its_jitter() -> None:
    backoff = exponential(first=1, factor=2, maximum=10, jitter=0.5)
    assert max(backoff(attempt) for attempt in range(1, 2000)) <= 15


@pytest.mark.parametrize("factor", [2, 2.0, 1.5, 1e300])
@pytest.mark.parametrize("attempt", [1_000, 32_767])
def test_many_failures_do_not_overflow(factor: float, attempt: int) -> None:
    assert exponential(factor=factor, maximum=3600, jitter=0)(attempt) == 3600
    assert exponential(first=0, factor=factor, maximum=3600, jitter=0)(attempt) == 0


def test_jitter_only_adds() -> None:
    plain = exponential(first=2, factor=3, maximum=100, jitter=0)
    backoff = exponential(first=2, factor=3, maximum=100, jitter=0.25)
    assert delays(backoff, uniform=0.0) == delays(plain)
    assert delays(backoff, uniform=1.0) == [delay * 1.25 for delay in delays(plain)]
    generator = random.Random(1)
    for attempt in range(1, 50):
        waits = [backoff(attempt, uniform=generator.random) for _ in range(50)]
        assert plain(attempt) <= min(waits) < max(waits) <= plain(attempt) * 1.25


def test_the_jitter_is_random_by_default() -> None:
    assert len({exponential()(3) for _ in range(10)}) > 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"first": -1}, "needs 0 <= first <= maximum"),
        ({"first": 10, "maximum": 5}, "needs 0 <= first <= maximum"),
        ({"first": math.nan}, "needs 0 <= first <= maximum"),
        ({"maximum": math.nan}, "needs 0 <= first <= maximum"),
        ({"maximum": math.inf}, "below 100 years"),
        ({"maximum": LONGEST_SPAN}, "below 100 years"),
        ({"factor": 0.5}, "needs factor >= 1"),
        ({"factor": math.inf}, "needs factor >= 1"),
        ({"factor": math.nan}, "needs factor >= 1"),
        ({"jitter": -0.1}, "jitter between 0 and 10"),
        ({"jitter": 11}, "jitter between 0 and 10"),
        ({"jitter": math.nan}, "jitter between 0 and 10"),
        ({"first": "1"}, r"exponential\(first=…\) must be a number, not '1'"),
        ({"jitter": None}, r"exponential\(jitter=…\) must be a number, not None"),
        ({"factor": True}, r"exponential\(factor=…\) must be a number, not True"),
    ],
)
def test_it_refuses_what_can_not_hold(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidTask, match=reason):
        exponential(**options)


def policy(**options: Any) -> RetryPolicy:
    return RetryPolicy(**{"backoff": exponential(first=10, jitter=0), **options})


def delay(policy: RetryPolicy, exception: BaseException | None = None, attempt: int = 1) -> float | None:
    return policy.delay_after(exception or ValueError(), attempt=attempt, max_attempts=3)


def test_it_retries_until_the_attempts_are_used_up() -> None:
    assert [delay(policy(), attempt=attempt) for attempt in (1, 2, 3, 4)] == [10, 20, None, None]


def test_it_retries_what_retry_on_names_and_its_subclasses_only() -> None:
    only = policy(retry_on=(OSError, KeyError))
    assert delay(only, ConnectionError()) == delay(only, KeyError()) == 10
    assert delay(only, ValueError()) is None


def test_give_up_on_wins_over_retry_on() -> None:
    picky = policy(retry_on=(OSError,), give_up_on=(ConnectionError,))
    assert delay(picky, ConnectionResetError()) is None
    assert delay(picky, FileNotFoundError()) == 10
    assert delay(policy(retry_on=(ValueError,), give_up_on=(Exception,))) is None


def test_by_default_it_retries_exceptions_and_nothing_above_them() -> None:
    assert delay(policy(), RuntimeError()) == 10
    assert delay(policy(), KeyboardInterrupt()) is None
    assert delay(policy(retry_on=())) is None


def test_a_backoff_function_gets_the_attempt_and_the_exception() -> None:
    seen: list[Any] = []
    error = ValueError("x")

    def backoff(attempt: int, exception: BaseException) -> float:
        seen.append((attempt, exception))
        return 1.5

    assert delay(policy(backoff=backoff), error, attempt=2) == 1.5
    assert seen == [(2, error)]


def test_a_backoff_function_is_not_asked_when_there_is_no_next_attempt() -> None:
    def backoff(attempt: int, exception: BaseException) -> float:
        raise AssertionError("asked")

    assert delay(policy(backoff=backoff), attempt=3) is None
    assert delay(policy(backoff=backoff, give_up_on=(ValueError,))) is None


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [(0, 0), (3, 3), (0.5, 0.5), (timedelta(minutes=1), 60), (None, None), (LONGEST_SPAN, LONGEST_SPAN)],
)
def test_a_backoff_function_answers_with_seconds_a_timedelta_or_none(answer: Any, seconds: float | None) -> None:
    assert delay(policy(backoff=lambda attempt, exception: answer)) == seconds


@pytest.mark.parametrize("answer", ["60", True, object(), [1], 1j])
def test_a_backoff_function_that_answers_with_something_else_raises_type_error(answer: Any) -> None:
    with pytest.raises(TypeError, match="a delay is a number of seconds or a timedelta, not"):
        delay(policy(backoff=lambda attempt, exception: answer))


@pytest.mark.parametrize(
    "answer", [-1, -0.001, timedelta(seconds=-1), math.nan, math.inf, LONGEST_SPAN + 1, timedelta.max]
)
def test_a_backoff_function_that_answers_with_no_possible_span_raises_value_error(answer: Any) -> None:
    with pytest.raises(ValueError, match="a delay is between 0 seconds and 100 years, not"):
        delay(policy(backoff=lambda attempt, exception: answer))


def test_what_a_backoff_function_raises_is_raised() -> None:
    def backoff(attempt: int, exception: BaseException) -> float:
        raise LookupError("no such delay")

    with pytest.raises(LookupError, match="no such delay"):
        delay(policy(backoff=backoff))


def test_seconds_of_a_span() -> None:
    assert as_seconds(None) is None
    assert as_seconds(timedelta(milliseconds=1)) == 0.001
    assert isinstance(as_seconds(1), float)
