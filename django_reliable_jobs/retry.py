"""Whether and when a failed job is tried again: plain maths, no database, no Django."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_reliable_jobs.exceptions import InvalidTask
from django_reliable_jobs.spelling import spelt_class

Backoff = Callable[[int, BaseException], "float | timedelta | None"]

LONGEST_SPAN = 100 * 365 * 86400  # seconds; far from what a timestamp can't hold


@spelt_class("exponential(first=5, maximum=600)", InvalidTask)
@dataclass(frozen=True)
class exponential:  # lower case, as it reads where it is used: backoff=exponential(first=5)
    """Wait `first` seconds after the first failure, then `factor` times longer each time, at most `maximum`.

    Jitter only ever adds: the wait lies between the delay and the delay x (1 + jitter), so a herd is spread and no
    retry comes earlier than asked. Raises InvalidTask for values that can't hold.
    """

    first: float = 1
    factor: float = 2
    maximum: float = 3600
    jitter: float = 0.25

    def __post_init__(self) -> None:
        for name in ("first", "factor", "maximum", "jitter"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidTask(f"exponential({name}=…) must be a number, not {value!r}")
        if not 0 <= self.first <= self.maximum:
            raise InvalidTask("exponential() needs 0 <= first <= maximum (seconds)")
        if not (1 <= self.factor < float("inf") and 0 <= self.jitter <= 10):
            raise InvalidTask("exponential() needs factor >= 1 and jitter between 0 and 10")
        if self.maximum * (1 + self.jitter) > LONGEST_SPAN:
            raise InvalidTask("exponential() needs maximum, with its jitter, below 100 years")

    def __call__(
        self,
        attempt: int,
        exception: BaseException | None = None,
        *,
        uniform: Callable[[], float] = random.random,
    ) -> float:
        """Return the seconds to wait after failure number `attempt` (from 1)."""
        try:
            delay = min(self.first * self.factor ** (attempt - 1), self.maximum)
        except OverflowError:
            delay = self.maximum if self.first else 0
        return delay + delay * self.jitter * uniform()


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """What a task says about its failures."""

    backoff: Backoff = exponential()
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()

    def delay_after(self, exception: BaseException, *, attempt: int, max_attempts: int) -> float | None:
        """Return the seconds until the next attempt, or None if there is to be none.

        Raises what a backoff function of the project's raises, and TypeError or ValueError for what it must not return.
        """
        if attempt >= max_attempts or self.is_final(exception):
            return None
        return as_seconds(self.backoff(attempt, exception))

    def is_final(self, exception: BaseException) -> bool:
        """Return whether a further try is known to end the same way."""
        return isinstance(exception, self.give_up_on) or not isinstance(exception, self.retry_on)

    def why_not_again(self, exception: BaseException) -> str:
        """Return, in words to be put behind the error, why it is not tried again although attempts are left."""
        name = type(exception).__name__
        if isinstance(exception, self.give_up_on):
            return f"; not tried again: {name} is in give_up_on"
        if not isinstance(exception, self.retry_on):
            return f"; not tried again: {name} is not in retry_on"
        return "; not tried again: the backoff said so"


DEFAULT_POLICY = RetryPolicy()


def seconds_until(after: float | timedelta | datetime, now: datetime) -> float:
    """Return the seconds from now on of a span or a moment, as Retry and Snooze name one."""
    if isinstance(after, datetime):
        after = max((after - now).total_seconds(), 0.0)
    return as_seconds(after) or 0.0


def as_seconds(span: float | timedelta | None) -> float | None:
    """Return a span as seconds; None stays None. Raises TypeError or ValueError for what is no span from now on."""
    if span is None:
        return None
    if isinstance(span, timedelta):
        span = span.total_seconds()
    if isinstance(span, bool) or not isinstance(span, int | float):
        raise TypeError(f"a delay is a number of seconds or a timedelta, not {span!r}")
    if not 0 <= span <= LONGEST_SPAN:
        raise ValueError(f"a delay is between 0 seconds and 100 years, not {span!r}")
    return float(span)
