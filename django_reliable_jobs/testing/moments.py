"""The clock of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo

from django.utils import timezone

from django_reliable_jobs import clock


@contextmanager
def at(moment: datetime | str, tz: tzinfo | str | None = None) -> Iterator[None]:
    """Take `moment` for now inside the block: what is enqueued, due, promoted, claimed and recorded sees it.

    A naive moment, or text such as "2026-03-29 02:30", is in `tz`, or in the current time zone; of a time that comes
    twice it is the first (`fold=1` says the second), and one that a clock change leaves out is counted on from before
    the change. Only jobs and schedules see it: `timezone.now()` in your own code goes on.
    """
    with clock.moved_to(as_moment(moment, tz)):
        yield


def as_moment(moment: datetime | str, tz: tzinfo | str | None = None) -> datetime:
    """Return a moment as an aware datetime. Raises ValueError for a zone beside a moment that has one."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if not isinstance(moment, datetime):
        raise TypeError(f"a moment is a datetime, or text such as '2026-03-29 02:30', not {moment!r:.80}")
    zone = ZoneInfo(tz) if isinstance(tz, str) else tz
    if timezone.is_naive(moment):
        return moment.replace(tzinfo=zone or timezone.get_current_timezone())
    if zone is not None:
        raise ValueError(f"{moment.isoformat()} has a time zone already; leave out tz={tz!r}")
    return moment
