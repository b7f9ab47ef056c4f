"""Wall-clock times of a zone, by a cron expression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar, Literal

from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.recurrence import clock_change_notes, cron_fields, description, moments
from django_reliable_jobs.recurrence.clock_change_notes import ClockChangeNote
from django_reliable_jobs.recurrence.clock_changes import load_zone
from django_reliable_jobs.recurrence.fires import Plan, first_fire_after, last_fire_before
from django_reliable_jobs.spelling import spelt_class

OnGap = Literal["auto", "after", "shift", "skip"]
OnFold = Literal["auto", "first", "second", "both"]

GAP_RULES = ("auto", "after", "shift", "skip")
FOLD_RULES = ("auto", "first", "second", "both")


@spelt_class("Cron('0 2 * * *', timezone='Europe/Berlin')", InvalidRecurrence)
@dataclass(frozen=True, slots=True)
class Cron:
    """Fires when the clocks of `timezone` show what `expression` names.

    `on_gap` decides what happens to a time that the clock jumps over: `skip` nothing, `after` it
    fires at the first instant after the jump, `shift` where it would have been (02:30 at 03:30).
    `on_fold` decides about a time that occurs twice: `first`, `second` or `both`. `auto` follows
    Debian cron: where the minute or hour field starts with `*`, `skip` and `both` (the clock is
    followed), else `after` and `first` (each run happens once).

    The fires are a set of instants. For 1900 to 9899, `next_after`, `last_before` and `between`
    agree on it, and each search ends: within fifty years it finds a fire or returns None.

    Raises InvalidRecurrence for an expression outside the grammar (`cron_fields`), dates that never
    come, times that the rules always leave out, an unknown zone or rule.
    """

    kind: ClassVar[str] = "cron"

    expression: str
    _: KW_ONLY
    timezone: str = "UTC"
    on_gap: OnGap = "auto"
    on_fold: OnFold = "auto"

    def __post_init__(self) -> None:
        for name in ("expression", "timezone", "on_gap", "on_fold"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InvalidRecurrence(f"{name} must be a string, not {type(value).__name__}")
        self._plan()
        object.__setattr__(self, "expression", " ".join(self.expression.split()))

    @property
    def is_wildcard(self) -> bool:
        """Whether the minute or hour field starts with `*`: what `auto` goes by."""
        return self._plan().fields.is_wildcard

    @property
    def effective_gap(self) -> str:
        """The rule for skipped times, `auto` resolved: skip, after or shift."""
        return self._plan().gap

    @property
    def effective_fold(self) -> str:
        """The rule for repeated times, `auto` resolved: first, second or both."""
        return self._plan().fold

    @property
    def canonical(self) -> str:
        """The five fields as they are understood: sorted lists of numbers, or `*`."""
        return self._plan().fields.canonical

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first fire strictly later than `moment` (aware), in UTC, or None."""
        fire = first_fire_after(self._plan(), moments.as_instant(moment))
        return None if fire is None else fire.replace(tzinfo=UTC)

    def last_before(self, moment: datetime) -> datetime | None:
        """Return the last fire strictly earlier than `moment` (aware), in UTC, or None.

        Searches backwards: the cost does not grow with the number of fires.
        """
        fire = last_fire_before(self._plan(), moments.as_instant(moment))
        return None if fire is None else fire.replace(tzinfo=UTC)

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the fires with after < fire <= until, lazily: the caller sets the bound."""
        return moments.walk(self.next_after, moments.as_utc(after, "after"), moments.as_utc(until, "until"))

    def clock_change_notes(self, after: datetime, until: datetime) -> Iterator[ClockChangeNote]:
        """Yield the runs that a clock change with after < change <= until skips or repeats.

        Lazily, in order; an expression that matches every minute has 60 of them an hour.
        """
        return clock_change_notes.notes(
            self._plan(), moments.as_instant(after, "after"), moments.as_instant(until, "until")
        )

    def describe(self) -> str:
        """Return what runs, in plain English, with the zone and the rules that can matter in it."""
        return description.describe(self._plan())

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-able form that `from_dict` reads."""
        return {
            "kind": self.kind,
            "expression": self.expression,
            "timezone": self.timezone,
            "on_gap": self.on_gap,
            "on_fold": self.on_fold,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Cron:
        """Make the value that `as_dict` was called on. Raises InvalidRecurrence."""
        names = {"expression", "timezone", "on_gap", "on_fold"}
        moments.refuse_other_keys(stored, cls.kind, names)
        if "expression" not in stored:
            raise InvalidRecurrence("cron has no 'expression'")
        return cls(**{name: stored[name] for name in names & set(stored)})

    def _plan(self) -> Plan:
        return _plan(self.expression, self.timezone, self.on_gap, self.on_fold)


@lru_cache(maxsize=8192)
def _plan(expression: str, timezone: str, on_gap: str, on_fold: str) -> Plan:
    fields = cron_fields.parse(expression)
    load_zone(timezone)
    _refuse_unknown_rule("on_gap", on_gap, GAP_RULES)
    _refuse_unknown_rule("on_fold", on_fold, FOLD_RULES)
    if on_gap == "auto":
        on_gap = "skip" if fields.is_wildcard else "after"
    if on_fold == "auto":
        on_fold = "both" if fields.is_wildcard else "first"
    plan = Plan(fields, timezone, on_gap, on_fold)
    _refuse_never(expression, plan)
    return plan


def _refuse_unknown_rule(name: str, rule: str, allowed: tuple[str, ...]) -> None:
    if rule not in allowed:
        raise InvalidRecurrence(f"{name} {rule!r} is not a rule: use {', '.join(allowed)}")


def _refuse_never(expression: str, plan: Plan) -> None:
    # "The last Sunday of March at 02:30" in Berlin, with skip: every such time is in the gap.
    if plan.gap == "skip" and first_fire_after(plan, datetime(2025, 1, 1)) is None:
        raise InvalidRecurrence(
            f"cron expression {expression!r} never fires: all its times are skipped by the clocks "
            f"of {plan.zone}; use on_gap='after' or another time"
        )
