"""When a schedule fires: `Cron`, `Every` and `Once`: pure values, no Django, no settings, no clock.

All three are frozen, hashable, picklable and answer the same questions, in aware UTC datetimes:

    next_after(moment)     the first fire strictly later, or None
    last_before(moment)    the last fire strictly earlier, or None
    between(after, until)  the fires with after < fire <= until, lazily
    describe()             what runs, in plain English
    as_dict()              a JSON-able form; `from_dict` makes an equal value of it
    clock_change_notes()   the runs that a change of the local clock touches (only Cron has any)

What can't hold raises `InvalidRecurrence`, a ValueError, when the value is made. A naive datetime
is refused.

Read on in this order: `cron` (the value), `cron_fields` (the grammar), `day_calendar` (which days
match), `wall_times` (which minutes match), `clock_changes` (what the zone does), `fires` (from wall
time to UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence.clock_change_notes import ClockChangeNote
from django_reliable_jobs.recurrence.cron import Cron
from django_reliable_jobs.recurrence.every import Every
from django_reliable_jobs.recurrence.once import Once

__all__ = ["ClockChangeNote", "Cron", "Every", "Once", "Recurrence", "from_dict"]

Recurrence = Cron | Every | Once


def from_dict(stored: Mapping[str, Any]) -> Recurrence:
    """Make the recurrence that `as_dict()` was called on. Raises InvalidRecurrence otherwise."""
    kind = stored.get("kind")
    if kind == Cron.kind:
        return Cron.from_dict(stored)
    if kind == Every.kind:
        return Every.from_dict(stored)
    if kind == Once.kind:
        return Once.from_dict(stored)
    raise InvalidRecurrence(f"kind {kind!r} is not a recurrence: use 'cron', 'every' or 'once'")
