"""How many attempts ended per minute, well or not: drawn on the server, from the counts that workers keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_reliable_jobs.admin.words import number
from django_reliable_jobs.engine.counters import Minute
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.models import MinuteCount

MINUTES = 180
HEIGHT = 100
FAILURES = (MinuteCount.Outcome.FAILED, MinuteCount.Outcome.DEAD, MinuteCount.Outcome.LOST)


@dataclass(frozen=True)
class Throughput:
    """The last hours in a drawing, and in numbers for who can't see it."""

    drawing: SafeString
    most: str  # in a minute
    succeeded: str  # in the last hour
    failed: str


def throughput(counts: Iterable[Minute], now: datetime) -> Throughput:
    """Draw a bar per minute: what failed stands on what succeeded."""
    first = now.replace(second=0, microsecond=0) - timedelta(minutes=MINUTES - 1)
    succeeded, failed = Counter[int](), Counter[int]()
    for each in counts:
        place = int((each.minute - first).total_seconds() // 60)
        if each.outcome == MinuteCount.Outcome.SUCCEEDED:
            succeeded[place] += each.attempts
        elif each.outcome in FAILURES:
            failed[place] += each.attempts
    most = max([1, *(succeeded[place] + failed[place] for place in range(MINUTES))])
    bars = [
        _bar(place, succeeded[place], failed[place], most, first + timedelta(minutes=place))
        for place in range(MINUTES)
        if succeeded[place] or failed[place]
    ]
    last_hour = range(MINUTES - 60, MINUTES)
    return Throughput(
        drawing=_drawing(bars),
        most=number(most),
        succeeded=number(sum(succeeded[place] for place in last_hour)),
        failed=number(sum(failed[place] for place in last_hour)),
    )


def _drawing(bars: list[SafeString]) -> SafeString:
    title = _("Attempts that ended in each of the last %d minutes") % MINUTES
    lines = format_html_join(
        "", '<line class="reliable-grid" x1="0" x2="{}" y1="{}" y2="{}"></line>', ((MINUTES, y, y) for y in (0, 50))
    )
    return format_html(
        '<svg class="reliable-throughput" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        "{}{}</svg>",
        *(MINUTES, HEIGHT, title, lines, format_html_join("", "{}", ((bar,) for bar in bars))),
    )


def _bar(place: int, succeeded: int, failed: int, most: int, minute: datetime) -> SafeString:
    well, badly = _height(succeeded, most), _height(failed, most)
    told = _("%(minute)s: %(succeeded)s succeeded, %(failed)s failed") % {
        "minute": as_local(minute),
        "succeeded": number(succeeded),
        "failed": number(failed),
    }
    return format_html(
        '<g><title>{}</title><rect class="reliable-well" x="{}" y="{}" width="0.8" height="{}"></rect>'
        '<rect class="reliable-badly" x="{}" y="{}" width="0.8" height="{}"></rect></g>',
        *(told, place, f"{HEIGHT - well:.1f}", f"{well:.1f}"),
        *(place, f"{HEIGHT - well - badly:.1f}", f"{badly:.1f}"),
    )


def _height(count: int, most: int) -> float:
    """Return the height of a part of a bar: what there is can be seen, however little of the whole it is."""
    return max(count / most * (HEIGHT - 4), 2.0) if count else 0.0
