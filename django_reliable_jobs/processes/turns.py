"""Whose turn it is among the lines of limited jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from django_reliable_jobs.engine.claim import ClaimedJob, Head
from django_reliable_jobs.engine.lines import Finding, Line
from django_reliable_jobs.processes.queues import QueueOrder


class Turns:
    """Remembers the line of each queue that had the last turn, and where to scan next if one scan does not see all."""

    def __init__(self, order: QueueOrder) -> None:
        self._order = order
        self._rank = {name: place for place, name in enumerate(order.weights or ())}
        self._count = 0
        self._cursors: dict[str, str] = {}
        self._last: dict[str, str] = {}

    def begin(self) -> None:
        """Let the next queue be the first."""
        self._count += 1

    def queues(self, names: Sequence[str], heads: Iterable[Head]) -> list[str]:
        """Return the queues in turn; where they are served strictly in order, none behind a ready ordinary job."""
        if not self._order.is_strict:
            shift = self._count % max(len(names), 1)
            return [*names[shift:], *names[:shift]]
        last = min((self._rank[head.queue_name] for head in heads), default=len(self._rank))
        return sorted((name for name in names if self._rank[name] <= last), key=self._rank.__getitem__)

    def rivals(self, names: Iterable[str], heads: Sequence[Head]) -> Sequence[Head]:
        """Return the ordinary jobs that have as good a right to a thread as limited jobs of these queues."""
        if not self._order.is_strict:
            return heads
        first = min((self._rank[name] for name in names), default=0)
        return [head for head in heads if self._rank[head.queue_name] <= first]

    def cursors(self, names: Iterable[str]) -> dict[str, str]:
        """Return for each queue the line behind which to look."""
        return {name: self._cursors.get(name, "") for name in names}

    def in_order(self, found: Iterable[Line], heads: Iterable[Head]) -> list[Line]:
        """Return the lines to claim from: the higher priority first, then those behind the one that had the last turn.

        None with a lower priority than an ordinary job that is ready in its queue.
        """
        lowest: dict[str, int] = {}
        for head in heads:
            lowest[head.queue_name] = max(head.priority, lowest.get(head.queue_name, head.priority))
        lines = [line for line in found if line.priority >= lowest.get(line.queue_name, line.priority)]
        if self._order.is_strict:
            lines = [line for line in lines if line.queue_name == lines[0].queue_name]
        lines.sort(key=lambda line: line.text <= self._last.get(line.queue_name, ""))
        return sorted(lines, key=lambda line: -line.priority)

    def move(self, cursors: Mapping[str, str], finding: Finding, claimed: Sequence[tuple[Line, ClaimedJob]]) -> bool:
        """Note who had a turn; return whether the scan from these cursors has left out no line before its end."""
        for line, job in claimed:
            if job.priority == claimed[-1][1].priority:  # those with a higher one went out of turn
                self._last[line.queue_name] = line.text
        for name in cursors:
            if name in finding.last:
                had_turn = any(line.queue_name == name for line, _ in claimed)
                self._cursors[name] = self._last[name] if had_turn else finding.last[name]
            else:
                self._cursors.pop(name, None)
        return not any(cursors.values())
