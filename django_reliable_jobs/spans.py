"""Spans of time as people type and read them: 90s, 15m, 1h30m, 2d."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "min": 60, "s": 1}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(min|[dhms])\s*")


def parse_span(text: str) -> timedelta:
    """Return the span of "90s", "15m", "2h", "1h30m" or "2d". Raises ValueError, which says so."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text):
        raise ValueError(f"{text!r} is no span: write 90s, 15m, 2h, 1h30m or 2d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= 10 * 365 * 86_400:
        raise ValueError(f"{text!r} must be more than nothing and at most ten years")
    return timedelta(seconds=seconds)


def write_span(span: timedelta) -> str:
    """Return a span as `parse_span` reads it, exactly: 1h30m."""
    rest, parts = span.total_seconds(), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if unit == "d" and rest < 172_800 and rest != 86_400:
            continue  # 26h, as people say
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number:.0f}{unit}")
    if rest or not parts:
        parts.append(f"{rest:f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)
