"""Arrays of numbers in the text form that PostgreSQL reads; the driver's own takes ten times as long to write."""

from __future__ import annotations

from collections.abc import Iterable


def integers(values: Iterable[int]) -> str:
    """Return the text of a bigint[]."""
    return f"{{{','.join(map(str, values))}}}"


def seconds(values: Iterable[float]) -> str:
    """Return the text of a float8[] of seconds, to the microsecond."""
    return f"{{{','.join([f'{value:.6f}' for value in values])}}}"
