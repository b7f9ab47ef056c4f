"""Which queues a worker serves, and in what order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django_reliable_jobs.engine.claim import Arm, ClaimedJob, Head

MOST_ARMS = 2  # of a queue in one claim: its lower priorities come when a higher one has run dry


@dataclass
class QueueOrder:
    """The queues of a worker: all in turn, by weights, or strictly in the order given.

    `weights` None: every queue except `excluded`, in turn. A dict of None values: strictly in its order. A dict of
    numbers: shares of the claimed jobs while several queues have some.
    """

    weights: Mapping[str, int | None] | None = None
    excluded: frozenset[str] = frozenset()
    _credit: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        served = "all queues" if self.weights is None else f"the queues {', '.join(self.weights)}"
        return f"{served} except {', '.join(sorted(self.excluded))}" if self.excluded else served

    @property
    def names(self) -> list[str] | None:
        """The queues by name, or None for all."""
        return None if self.weights is None else list(self.weights)

    @property
    def is_strict(self) -> bool:
        return self.weights is not None and None in self.weights.values()

    @property
    def has_order(self) -> bool:
        """Whether jobs of one queue go before those of another, always or by weight."""
        return self.weights is not None and len(self.weights) > 1

    def serves(self, queue_name: str) -> bool:
        """Return whether a job of this queue may be claimed by this worker."""
        if queue_name in self.excluded:
            return False
        return self.weights is None or queue_name in self.weights

    def seats(self, heads: Iterable[Head], wanted: int) -> list[str]:
        """Return the queue of each of the next `wanted` jobs, in order; strict order has no seats.

        Smooth weighted turns: every queue gains its weight, the richest takes the seat and pays the sum. Credit is kept
        from call to call, so that one thread that claims job by job gives the same shares as a batch.
        """
        names = sorted({head.queue_name for head in heads})
        if self.is_strict or not names:
            return []
        if len(names) == 1:
            return names * wanted
        weights = {name: (self.weights or {}).get(name) or 1 for name in names}
        total = sum(weights.values())
        credit = {name: self._credit.get(name, 0) for name in names}
        seats = []
        for _ in range(wanted):
            for name, weight in weights.items():
                credit[name] += weight
            richest = max(names, key=credit.__getitem__)
            credit[richest] -= total
            seats.append(richest)
        self._credit = credit
        return seats

    def arms(self, heads: Sequence[Head], seats: Sequence[str], wanted: int) -> list[Arm]:
        """Return the arms to claim from: queues in order, each with its priorities from the highest down."""
        if self.is_strict:
            order = {name: place for place, name in enumerate(self.weights or {})}
            ranked = sorted(heads, key=lambda head: (order[head.queue_name], -head.priority))
            return [_arm(head, wanted) for head in ranked]
        shares = {name: seats.count(name) for name in set(seats)}
        ranked = sorted(heads, key=lambda head: (head.queue_name, -head.priority))
        arms: dict[str, list[Arm]] = {}
        for head in ranked:
            if shares.get(head.queue_name):
                arms.setdefault(head.queue_name, []).append(_arm(head, shares[head.queue_name]))
        return [arm for of_queue in arms.values() for arm in of_queue[:MOST_ARMS]]


def _arm(head: Head, share: int) -> Arm:
    return Arm(head.queue_name, head.priority, share, head.due, head.id - 1)


def advanced(heads: Sequence[Head], claimed: Sequence[ClaimedJob]) -> list[Head]:
    """Return the heads behind what was claimed from them, as far as it is known without another look."""
    last = {(job.queue_name, job.priority): job for job in claimed}  # the last in the order of the claim stays
    moved = []
    for head in heads:
        job = last.get((head.queue_name, head.priority))
        moved.append(head if job is None else head._replace(due=job.due, id=job.id + 1, is_suspect=False))
    return moved


def seated(jobs: Sequence[ClaimedJob], seats: Sequence[str]) -> list[ClaimedJob]:
    """Return claimed jobs in the order of the seats of their queues; within a queue their order stays."""
    if len(set(seats)) < 2:
        return list(jobs)
    lines: dict[str, list[ClaimedJob]] = {}
    for job in jobs:
        lines.setdefault(job.queue_name, []).append(job)
    heads = {name: iter(line) for name, line in lines.items()}
    next_up = (next(heads[seat], None) for seat in seats if seat in heads)
    return [job for job in next_up if job is not None]
