"""What a recurrence will do, in words and moments: for people, before they save it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice

from django_reliable_jobs.recurrence import ClockChangeNote, Cron, Once
from django_reliable_jobs.recurrence.clock_changes import changes_between, load_zone
from django_reliable_jobs.slots import Timeline

RUNS = 10
WARNED_AHEAD = timedelta(days=400)  # every clock change of a year
MOST_NOTES = 3  # of one clock change; an expression of every minute has sixty
MOST_WALKED = 200
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # strftime follows the locale of the process


@dataclass(frozen=True)
class Run:
    """One of the next runs; `note` says what a clock change does to it, empty if none does."""

    at: datetime
    local: str
    utc: str
    note: str


@dataclass(frozen=True)
class Preview:
    """A recurrence in plain English, its next runs, and warnings about clock changes within about a year."""

    description: str
    timezone: str
    runs: list[Run]
    warnings: list[str]

    @property
    def is_touched(self) -> bool:
        """Whether a clock change does something to one of the runs."""
        return any(run.note for run in self.runs)


def preview(timeline: Timeline, after: datetime, *, display_zone: str) -> Preview:
    """Describe the runs after a moment; what knows no zone is shown in `display_zone`."""
    recurrence = timeline.recurrence
    zone = recurrence.timezone if isinstance(recurrence, Cron) else display_zone
    moments = timeline.first_few(after, RUNS)
    until = max([after + WARNED_AHEAD, *(moment + timedelta(days=1) for moment in moments[:RUNS])])
    notes = list(islice(recurrence.clock_change_notes(after - timedelta(days=2), until), MOST_WALKED))
    note_of = {moment: note for note in notes for moment in note.runs_at}
    runs = [_run(moment, zone, note_of.get(moment)) for moment in moments]
    return Preview(recurrence.describe(), zone, runs, list(_warnings(notes, after)))


def next_change_touches(timeline: Timeline, after: datetime) -> bool:
    """Return whether the next clock change of its zone skips, repeats or moves a run."""
    recurrence = timeline.recurrence
    if not isinstance(recurrence, Cron):
        return False
    naive = after.astimezone(UTC).replace(tzinfo=None)
    change = next(changes_between(recurrence.timezone, naive, naive + WARNED_AHEAD), None)
    if change is None:
        return False
    at = change.at.replace(tzinfo=UTC)
    return next(recurrence.clock_change_notes(at - timedelta(seconds=1), at), None) is not None


def never_runs(timeline: Timeline, after: datetime) -> str | None:
    """Return why there is no run after a moment, or None."""
    if timeline.next_after(after) is not None:
        return None
    if isinstance(timeline.recurrence, Once) and timeline.recurrence.at <= after:
        return "This moment has passed: it would never run."
    return "It would never run: no run lies between its start and its end, from now on."


def _run(moment: datetime, zone: str, note: ClockChangeNote | None) -> Run:
    local = moment.astimezone(load_zone(zone))
    return Run(
        at=moment,
        local=f"{WEEKDAYS[local.weekday()]} {local:%Y-%m-%d %H:%M:%S %Z}",
        utc=f"{WEEKDAYS[moment.weekday()]} {moment:%Y-%m-%d %H:%M:%S}",
        note=note.message if note else "",
    )


def _warnings(notes: list[ClockChangeNote], after: datetime) -> Iterator[str]:
    of_change = Counter(note.changes_at for note in notes)
    for changes_at, group in groupby(notes, key=lambda note: note.changes_at):
        if changes_at <= after:
            continue
        shown = list(islice(group, MOST_NOTES))
        yield from (note.message for note in shown)
        more = of_change[changes_at] - len(shown)
        if more:
            yield f"and so on: this clock change touches {more} more of its times"
