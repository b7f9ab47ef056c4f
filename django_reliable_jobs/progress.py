"""How far a running job has come, by its own word. Kept in memory: the worker's heartbeat writes it."""

from __future__ import annotations

import math
import threading
import time
from typing import NamedTuple

SMOOTHING_SECONDS = 30.0  # the rate follows a change of speed in about so long
MOST = 2**63 - 1
MESSAGE_CHARACTERS = 500


class Said(NamedTuple):
    """What a job said of itself last."""

    done: int
    total: int | None = None
    message: str = ""
    skipped: int = 0


class Progress:
    """What one attempt says of itself. `say` is cheap enough to call for each item; `news` is for who writes it."""

    __slots__ = ("_began", "_last", "_mutex", "_rate", "_said", "_written")

    def __init__(self) -> None:
        self._said: Said | None = None
        self._written: Said | None = None
        self._began: tuple[float, int] | None = None  # when it said how far it was for the first time, and how far
        self._last: tuple[float, int] | None = None
        self._rate: float | None = None
        self._mutex = threading.Lock()  # between the heartbeat and who records the end

    @property
    def said(self) -> Said | None:
        return self._said

    def say(self, done: int, total: int | None = None, message: str | None = None) -> None:
        """Remember how far the job has come. A total or message that is left out stays as it was."""
        before = self._said or Said(0)
        done = whole("done", done)
        total = before.total if total is None else whole("total", total)
        if message is None:
            message = before.message
        elif not isinstance(message, str):
            raise TypeError(f"the message of progress is text, not {message!r:.80}")
        self._remember(Said(done, total, message[:MESSAGE_CHARACTERS], before.skipped))

    def count(self, done: int, total: int | None, skipped: int) -> None:
        """Remember what the batches of a job have counted; the message stays."""
        self._remember(Said(done, total, self._said.message if self._said else "", skipped))

    def news(self) -> tuple[Said, float | None] | None:
        """Return what was said and the items per second, if that is not what was returned last."""
        with self._mutex:
            said = self._said
            if said is None or said is self._written:
                return None
            self._written = said
            self._measure(said.done, time.monotonic())
            return said, self._rate

    def not_written(self) -> None:
        """Take back that `news` was written."""
        with self._mutex:
            self._written = None

    def _remember(self, said: Said) -> None:
        if self._began is None:
            self._began = self._last = time.monotonic(), said.done
        self._said = said

    def _measure(self, done: int, now: float) -> None:
        if self._began is None or self._last is None:
            return
        since, before = self._last
        span = now - since
        if span <= 0:
            return
        speed = max(done - before, 0) / span
        if self._rate is None and speed == 0:
            return
        # As if it had always been so fast, at first; later the older a speed is, the less it counts.
        weight = (
            1.0 if self._rate is None else max(-math.expm1(-span / SMOOTHING_SECONDS), span / (now - self._began[0]))
        )
        self._rate = speed if self._rate is None else self._rate + weight * (speed - self._rate)
        self._last = now, done


def whole(name: str, value: int) -> int:
    """Return a plain int that fits into its column; one that does not would keep all reports from being written."""
    if not isinstance(value, int) or not 0 <= value <= MOST:
        raise TypeError(f"progress: {name} is a whole number from 0 to {MOST}, not {value!r:.80}")
    return int(value)


def in_words(done: int, total: int | None, skipped: int) -> str:
    """Return how far a job is: 4,520 of 10,000 done, 3 skipped."""
    of = "" if total is None else f" of {total:,}"
    return f"{done:,}{of} done" + (f", {skipped:,} skipped" if skipped else "")
