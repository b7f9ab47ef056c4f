"""Moments, spans and names as the pages of the admin show them: escaped, marked up, in the reader's language."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

from django.utils.formats import get_format, number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_reliable_jobs.engine import inspection
from django_reliable_jobs.engine.inspection import QueueStatus, as_local

SHORT_JSON = 80  # characters: on one line
LONG_JSON = 2_000  # is folded
MOST_JSON = 100_000
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def breakable(name: str) -> SafeString:
    """Return a name that may break after its dots and underscores, so that the other columns have room."""
    return format_html_join("", "{}<wbr>", ((part,) for part in re.split(r"(?<=[._])", name)))


def on_two_lines(moment: datetime) -> SafeString:
    """Return the date above the time, each unbroken."""
    date, time = as_local(moment).split(" ", maxsplit=1)
    return format_html("<div class='nowrap'>{}</div><div class='nowrap'>{}</div>", date, time)


def breakable_moment(text: str) -> SafeString:
    """Return a moment that may break between date and time, and nowhere else."""
    date, time = text.split(" ", maxsplit=1)
    return format_html('<span class="nowrap">{}</span> <span class="nowrap">{}</span>', date, time)


def preformatted(text: str) -> SafeString | str:
    """Return a text as it is, line by line and escaped."""
    return format_html('<pre class="reliable-text">{}</pre>', text) if text else "-"


def as_json(value: Any, key: str) -> SafeString | str:
    """Return a JSON value for reading, escaped: a long one folded, and no more of it than a page can bear.

    `key` tells the folded values of a page apart.
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > SHORT_JSON:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    if len(text) <= LONG_JSON:
        return preformatted(text)
    how_long = ngettext("%s character", "%s characters", len(text)) % number(len(text))
    if len(text) > MOST_JSON:
        text = f"{text[:MOST_JSON]}…"
        how_long = _("the first %(shown)s of %(all)s") % {"shown": number(MOST_JSON), "all": how_long}
    return format_html(
        '<details data-key="{}"><summary>{}</summary><pre class="reliable-text">{}</pre></details>', key, how_long, text
    )


def span_in_words(span: timedelta) -> str:
    """Return a span in its two largest units: 3 d 4 h, 2 min 5 s, 0.25 s."""
    seconds = max(span.total_seconds(), 0.0)
    if 0 < seconds < 0.001:
        return "< 1 ms"
    if seconds < 60:
        text = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.3g}"
        return f"{text.replace('.', get_format('DECIMAL_SEPARATOR'))} s"
    rest, parts = round(seconds), list[str]()
    for size, unit in (*_UNITS, (1, "s")):
        number, rest = divmod(rest, size)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def when(moment: datetime, now: datetime) -> SafeString:
    """Return how far off a moment is, with the moment itself behind it."""
    span = span_in_words(timedelta(seconds=round(abs(now - moment).total_seconds())))
    words = _("%s ago") % span if moment <= now else _("in %s") % span
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', moment.isoformat(timespec="seconds"), as_local(moment), words
    )


def clock_time(moment: datetime, now: datetime) -> SafeString:
    """Return the time of day, with the date if it is another day's."""
    text = as_local(moment)
    date, time, zone = text.split(" ", maxsplit=2)
    short = time[:5] if date == as_local(now).split(" ")[0] else f"{date} {time[:5]}"
    return format_html('<time datetime="{}" title="{}">{} {}</time>', moment.isoformat(), text, short, zone)


def number(value: float) -> str:
    """Return a number with the separators of the language."""
    return number_format(value, decimal_pos=0, use_l10n=True, force_grouping=True)


class Count(int):
    """A number that reads as `number()` writes it, and by which a lazy translation still chooses its plural."""

    def __str__(self) -> str:
        return number(int(self))


def at_least(count: int, has_more: bool) -> str:
    """Return a number, with a sign if more was not counted."""
    return f"{number(count)}+" if has_more else number(count)


def waiting_in_words(queue: QueueStatus) -> dict[str, str]:
    """Return how many jobs are ready in a queue, and how many scheduled, as far as they were counted."""
    return {
        "ready": at_least(min(queue.ready, inspection.MOST_COUNTED), queue.ready_at_least),
        "scheduled": at_least(min(queue.scheduled, inspection.MOST_COUNTED), queue.scheduled_at_least),
    }


def how_many_jobs(count: int, *, has_more: bool = False) -> str:
    return ngettext("%s job", "%s jobs", count) % at_least(count, has_more)


def queues_in_words(queues: list[str] | None, excluded: list[str]) -> str:
    """Return which queues a worker serves."""
    served = pgettext("queues", "all") if queues is None else ", ".join(queues)
    if not excluded:
        return served
    return _("%(queues)s except %(excluded)s") % {"queues": served, "excluded": ", ".join(excluded)}


def state_in_words(state: str) -> str:
    """Return the state of a worker as `inspection.with_state` names it, in the reader's language."""
    return {
        "working": pgettext("a worker", "working"),
        "idle": pgettext("a worker", "idle"),
        "stopping": pgettext("a worker", "stopping"),
        "silent": pgettext("a worker", "silent"),
        "lost": pgettext("a worker", "lost"),
    }[state]


def done_in_words(done: int, total: int | None, skipped: int) -> str:
    """Return how far a job is."""
    if total is None:
        told = _("%s done") % number(done)
    else:
        told = _("%(done)s of %(total)s done") % {"done": number(done), "total": number(total)}
    return ", ".join([told, _("%s skipped") % number(skipped)]) if skipped else told
