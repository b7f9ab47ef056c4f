"""Which due slots of a schedule become jobs, and why the others do not. Pure: no Django, no database, no clock.

In this order: what is older than the start deadline is missed; the newest is on time if it is younger than the grace,
all others are misfires; `catch_up` says which of them are kept; `overlap` says what live jobs of the schedule mean for
those.

Slots are searched backwards from the newest, so that the cost depends on what is kept, not on how many were missed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal, NamedTuple

from django_reliable_jobs.recurrence import Every, Recurrence

Overlap = Literal["allow", "skip", "queue", "replace"]
CatchUp = Literal["none", "latest", "all"]

MOST_COUNTED = 20_000  # of the slots of a cron expression, walked one by one

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The slots of a recurrence from `starts_at` to `ends_at`, both included."""

    recurrence: Recurrence
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first slot strictly later, or None."""
        if self.starts_at is not None:
            moment = max(moment, self.starts_at - _TICK)
        slot = self.recurrence.next_after(moment)
        return None if slot is None or (self.ends_at is not None and slot > self.ends_at) else slot

    def last_before(self, moment: datetime) -> datetime | None:
        """Return the last slot strictly earlier, or None."""
        if self.ends_at is not None:
            moment = min(moment, self.ends_at + _TICK)
        slot = self.recurrence.last_before(moment)
        return None if slot is None or (self.starts_at is not None and slot < self.starts_at) else slot

    def last_until(self, moment: datetime) -> datetime | None:
        """Return the last slot that is not later, or None."""
        return self.last_before(moment + _TICK)

    def first_few(self, after: datetime, count: int) -> list[datetime]:
        """Return the next slots, at most `count`."""
        slots: list[datetime] = []
        slot = self.next_after(after)
        while slot is not None and len(slots) < count:
            slots.append(slot)
            slot = self.next_after(slot) if len(slots) < count else None
        return slots

    def count(self, first: datetime, last: datetime) -> int | None:
        """Return how many slots there are from one to another; None: more than MOST_COUNTED of a cron expression."""
        if isinstance(self.recurrence, Every):
            return (last - first) // self.recurrence.interval + 1
        counted = sum(1 for _ in islice(self.recurrence.between(first, last), MOST_COUNTED)) + 1
        return counted if counted <= MOST_COUNTED else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a schedule says about slots that are late or meet live jobs; `grace` is how late is still on time."""

    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 100
    start_deadline: timedelta | None = None
    grace: timedelta = timedelta(seconds=60)


class LiveJobs(NamedTuple):
    """The schedule's jobs that have not ended: how many have begun, how many wait for their first start."""

    begun: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Dropped:
    """Slots from `first` to `last`, `count` of them (None: many), that get no job for one reason."""

    first: datetime
    last: datetime
    count: int | None
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of all slots up to `newest`; nothing was due if that is None."""

    newest: datetime | None = None
    jobs: tuple[datetime, ...] = ()  # slots that get a job, oldest first
    dropped: tuple[Dropped, ...] = ()
    replaces: bool = False  # the live jobs are to be cancelled


NOTHING_DUE = Decision()


def decide(timeline: Timeline, after: datetime, now: datetime, policy: Policy, live: LiveJobs) -> Decision:
    """Decide all slots with after < slot <= now."""
    newest = timeline.last_until(now)
    if newest is None or newest <= after:
        return NOTHING_DUE
    dropped: list[Dropped] = []
    after = _drop_missed(timeline, after, now, policy, dropped)
    kept = _keep(timeline, after, newest, now, policy) if after < newest else []
    reason = "limit" if policy.catch_up == "all" else "misfire"
    until = newest if not kept else timeline.last_before(kept[0])
    _drop(timeline, after, until, "missed", reason, dropped)
    return _overlap(timeline, kept, newest, policy, live, dropped)


def drop_all(timeline: Timeline, after: datetime, until: datetime, reason: str) -> list[Dropped]:
    """Return what is recorded of the undecided slots with after < slot <= until that will get no job."""
    dropped: list[Dropped] = []
    _drop(timeline, after, timeline.last_until(until), "skipped", reason, dropped)
    return dropped


def jitter_of(schedule_id: int, slot: datetime, jitter: timedelta | None) -> timedelta:
    """Return how much later than its slot a job starts: at most `jitter`, and the same for a slot on every host."""
    if not jitter:
        return timedelta()
    text = f"{schedule_id}:{(slot - _EPOCH) // _TICK}"
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    return timedelta(milliseconds=number % (jitter // timedelta(milliseconds=1) + 1))


def _drop_missed(
    timeline: Timeline, after: datetime, now: datetime, policy: Policy, dropped: list[Dropped]
) -> datetime:
    """Drop what is older than the start deadline; return the last slot dropped, or `after`."""
    if policy.start_deadline is None:
        return after
    late = timeline.last_before(now - policy.start_deadline)
    if late is None or late <= after:
        return after
    _drop(timeline, after, late, "missed", "deadline", dropped)
    return late


def _keep(timeline: Timeline, after: datetime, newest: datetime, now: datetime, policy: Policy) -> list[datetime]:
    """Return the slots that `catch_up` keeps, oldest first."""
    if policy.catch_up == "none":
        return [newest] if now - newest <= policy.grace else []
    most = policy.catch_up_limit if policy.catch_up == "all" else 1
    kept: list[datetime] = []
    slot: datetime | None = newest
    while slot is not None and slot > after and len(kept) < most:
        kept.append(slot)
        slot = timeline.last_before(slot)
    return kept[::-1]


def _overlap(
    timeline: Timeline,
    kept: list[datetime],
    newest: datetime,
    policy: Policy,
    live: LiveJobs,
    dropped: list[Dropped],
) -> Decision:
    """Let the live jobs speak. Slots that are caught up together do not count against each other: they run in turn."""
    is_taken = {"skip": live.begun + live.waiting > 0, "queue": live.waiting > 0}.get(policy.overlap, False)
    if kept and is_taken:
        dropped.append(Dropped(kept[0], kept[-1], len(kept), "skipped", "overlap"))
        kept = []
    if policy.overlap == "replace" and len(kept) > 1:
        dropped.append(Dropped(kept[0], kept[-2], len(kept) - 1, "skipped", "replaced"))
        kept = kept[-1:]
    return Decision(newest, tuple(kept), tuple(dropped), replaces=policy.overlap == "replace" and bool(kept))


def _drop(
    timeline: Timeline,
    after: datetime,
    until: datetime | None,
    outcome: str,
    reason: str,
    dropped: list[Dropped],
) -> None:
    if until is None or until <= after:
        return
    first = timeline.next_after(after)
    if first is not None and first <= until:
        dropped.append(Dropped(first, until, timeline.count(first, until), outcome, reason))
