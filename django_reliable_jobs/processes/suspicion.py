"""Jobs that lost their worker before: each may be what kills its process, so it runs alone if it can."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django_reliable_jobs.engine.claim import Head
from django_reliable_jobs.engine.lines import Line
from django_reliable_jobs.processes.recorder import Recorder

DRAIN_SECONDS = 2.0  # how long claims wait for the process to be empty when a suspect is next
ALONE_SECONDS = 5.0  # how long a suspect has the process for itself


class Suspicion:
    """Holds back claims until the process is empty for a suspect, and while a suspect is young.

    A process whose other jobs are long is not held up for more than DRAIN_SECONDS: then a suspect runs beside them, but
    with nothing prefetched behind it.
    """

    def __init__(self) -> None:
        self._waiting_since: float | None = None
        self._patience = DRAIN_SECONDS

    def holds_back(self, heads: Sequence[Head | Line], recorder: Recorder) -> bool:
        """Return whether nothing may be claimed now."""
        now = time.monotonic()
        suspects = [held for held in recorder.running_or_next() if held.job.losses > 0]
        if any(held.started is None or now - held.started < ALONE_SECONDS for held in suspects):
            return True
        if not any(head.is_suspect for head in heads):
            self._waiting_since = None
            return False
        if recorder.in_hand == 0:
            self._patience = DRAIN_SECONDS
            return False
        self._waiting_since = self._waiting_since or now
        if now - self._waiting_since < self._patience:
            return True
        self._patience = 0.0  # its jobs are long: do not wait again until it was empty once
        return False

    def may_claim(self, in_hand: int, free: int) -> bool:
        """Return whether a suspect may be claimed: the process is empty, or was waited for in vain and has a free
        thread.
        """
        return in_hand == 0 or (free > 0 and self._waiting_since is not None and self._patience == 0.0)
