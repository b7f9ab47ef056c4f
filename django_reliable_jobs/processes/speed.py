"""How fast the jobs of a worker end."""

from __future__ import annotations

import time

WINDOW = 0.1  # seconds that the present speed is judged by
SHORTEST = 0.01  # seconds; one job that ends at once is not a hundred thousand a second


class Speed:
    """Jobs that ended per second, of late. What lies further back counts half as much with each window."""

    def __init__(self) -> None:
        self._ended = self._seconds = 0.0
        self._noted_at = time.monotonic()

    def note(self, ended: int) -> None:
        """Take note of the jobs that ended since the last call."""
        now = time.monotonic()
        self._ended += ended
        self._seconds += now - self._noted_at
        self._noted_at = now
        if self._seconds > WINDOW:
            share = min(0.5, WINDOW / self._seconds)
            self._ended *= share
            self._seconds *= share

    def reset(self) -> None:
        """Begin anew, from standing still."""
        self._ended = self._seconds = 0.0
        self._noted_at = time.monotonic()

    def in_seconds(self, seconds: float) -> int:
        """Return how many jobs end in so many seconds, if it goes on like this."""
        return int(self._ended / max(self._seconds, SHORTEST) * seconds)
