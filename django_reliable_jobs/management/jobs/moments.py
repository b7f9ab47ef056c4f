"""Moments and spans, as people type and read them."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.spans import parse_span

__all__ = ["distance", "moment_from", "parse_moment", "parse_span", "span"]


def parse_moment(text: str) -> datetime:
    """Return the moment of an ISO 8601 text, in the current time zone if it names none. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no moment: write 2030-01-31T08:00 or 2030-01-31T08:00+01:00") from None
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def span(given: timedelta | None) -> str | None:
    """Return a span with one or two units: 12 ms, 3 s, 4 min, 2 h 5 min, 3 d."""
    if given is None:
        return None
    seconds = abs(given.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def moment_from(moment: datetime | None, *, now: datetime) -> str | None:
    """Return a moment and how far it is from now: 2030-01-31 08:00:00 UTC (3 min ago)."""
    if moment is None:
        return None
    return f"{as_local(moment)} ({distance(moment, now=now)})"


def distance(moment: datetime, *, now: datetime) -> str:
    """Return "3 min ago" or "in 3 min"."""
    return f"{span(now - moment)} ago" if moment <= now else f"in {span(moment - now)}"
