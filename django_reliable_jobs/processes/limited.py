"""What a worker takes in of the jobs that count for limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import limited, lines
from django_reliable_jobs.engine.claim import Arm, ClaimedJob, Head, Sight
from django_reliable_jobs.engine.lines import Line
from django_reliable_jobs.processes.turns import Turns

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

FIRST_PAUSE = 0.05  # seconds; doubles up to POLL_SECONDS while no job may start
BUSY_PAUSES = 100  # times as long as a look in vain took, while ordinary jobs use the threads
PATIENCE = 1.0  # seconds for which a job may be passed over


class LimitedIntake:
    """Claims limited jobs, on the worker's own thread, for threads that are free or about to be; none beyond those.

    Beside ordinary jobs that are ready they get half of the threads, and with one thread every second turn.

    Nothing is looked at while nothing can have changed: a place that was taken here is seen to be free, a rate tells
    its moment, and for the rest the pauses grow up to POLL_SECONDS. Of many workers that wait for one rate, the one
    that started the last job comes back at the moment; the others let it go first.
    """

    def __init__(
        self, worker: Worker, *, start: Callable[[Sequence[ClaimedJob]], None], passed_over: Callable[[int], None]
    ) -> None:
        self._worker = worker
        self._start = start
        self._passed_over = passed_over
        self._turns = Turns(worker.queues)
        self._queues: list[str] = []  # with limited jobs that are ready
        self._capped: list[Head] = []  # ordinary jobs of queues that have a limit themselves
        self._held: set[int] = set()  # tokens that were claimed here
        self._left: dict[int, float] = {}  # jobs that might have started and were not claimed, and since when
        self._again_at = self._looked_at = 0.0
        self._failures = 0
        self._soonest: float | None = None
        self._owes = False
        self.suspects: list[Line] = []

    @property
    def waits(self) -> bool:
        """Whether limited jobs are ready that may start some time, as the limits stand."""
        return bool(self._queues or self._capped)

    def saw(self, sight: Sight) -> None:
        """Take note of what a look found."""
        if not self.waits:
            self.look_now()
        serves = self._worker.queues.serves
        self._queues = [name for name in sight.limited if serves(name)]
        self._capped = [head for head in sight.heads if head.is_capped and serves(head.queue_name)]

    def take(self, heads: Sequence[Head], *, is_brisk: bool, alone: bool) -> int:
        """Claim and start what may start; return how many. `heads` are the ordinary jobs that are ready.

        `is_brisk`: jobs end so fast that a thread is about to be free although all are busy.
        """
        self._notice_ended()
        self.suspects = self.suspects if self.waits else []
        if not self.waits or time.monotonic() < self._again_at:
            return 0
        rivals = self._rivals(heads)
        room = 0 if self._owes and rivals else self._room(rivals, is_brisk)
        if room <= 0:
            return 0
        self._soonest, self._looked_at, self._again_at = None, time.monotonic(), 0.0
        self._turns.begin()
        self._worker.pool.hand_out()
        taken = self._take_lines(heads, room, alone)
        if taken < room:
            taken += self._take_capped(heads, room - taken, alone)
        if taken:
            self._failures, self._owes = 0, True
        else:
            self._put_off(is_busy=bool(rivals))
        return taken

    def have_turn(self, heads: Sequence[Head]) -> Sequence[Head]:
        """Return the ordinary jobs that are next, none that limited ones go before; note their turn."""
        rivals, owes, self._owes = self._rivals(heads), self._owes, False
        may_start = self.waits and time.monotonic() >= self._again_at
        return rivals if may_start or (owes and rivals) else heads

    def _rivals(self, heads: Sequence[Head]) -> Sequence[Head]:
        return self._turns.rivals([*self._queues, *(head.queue_name for head in self._capped)], heads)

    def delay(self) -> float | None:
        """Return the seconds until it makes sense to look at limits again; None: nothing waits for them."""
        return max(self._again_at - time.monotonic(), 0.0) if self.waits else None

    def look_now(self) -> None:
        """Look at limits with the next turn."""
        self._again_at, self._failures = 0.0, 0

    def wake(self) -> None:
        """Look at limits soon: somebody made a job ready, perhaps one that nothing holds up."""
        self._again_at = min(self._again_at, self._looked_at + FIRST_PAUSE)

    def forget(self) -> None:
        """Start from nothing: the connection or the identity was lost."""
        self._queues, self._capped = [], []
        self._held.clear()

    def _notice_ended(self) -> None:
        ended = {token for token in self._held if not self._worker.recorder.holds(token)}
        if ended:  # and recorded: their places are free
            self._held -= ended
            self.look_now()

    def _room(self, rivals: Sequence[Head], is_brisk: bool) -> int:
        worker = self._worker
        room = (max(worker.threads // 2, 1) if rivals else worker.threads) - len(self._held)
        if (free := self._free()) or not is_brisk:
            room = min(room, free)
        return room if worker.jobs_left is None else min(room, worker.jobs_left - worker.recorder.in_hand)

    def _free(self) -> int:
        return max(self._worker.threads - self._worker.recorder.in_hand, 0)

    def _take_lines(self, heads: Sequence[Head], room: int, alone: bool) -> int:
        worker, names = self._worker, self._turns.queues(self._queues, heads)
        if not names:
            return 0
        cursors = self._turns.cursors(names)
        finding = lines.find_lines(worker.using, cursors)
        candidates = self._turns.in_order(finding.lines, heads)
        claimed: list[tuple[Line, ClaimedJob]] = []
        if candidates:
            claimed = limited.claim_lines(
                worker.using, worker.identity.id, candidates, limit=room, free=self._free(), alone=alone
            )
        self._start_all([job for _, job in claimed])
        had_turn = {line for line, _ in claimed}
        self.suspects = [line for line in candidates if line.is_suspect and line not in had_turn]
        self._report_left([] if len(claimed) == room else candidates, had_turn)
        self._soonest = finding.soonest
        if not self._turns.move(cursors, finding, claimed):
            self._soonest = 0.0  # the scan began in the middle
        elif finding.is_hopeless:
            self._queues = [name for name in self._queues if name not in names]
        return len(claimed)

    def _take_capped(self, heads: Sequence[Head], room: int, alone: bool) -> int:
        worker, names = self._worker, self._turns.queues([head.queue_name for head in self._capped], heads)
        arms = [
            Arm(head.queue_name, head.priority, room)
            for head in sorted(self._capped, key=lambda head: (names.index(head.queue_name), -head.priority))
            if head.queue_name in names
        ]
        if not arms:
            return 0
        claimed = limited.claim_capped(
            worker.using, worker.identity.id, arms, limit=room, free=self._free(), alone=alone
        )
        self._start_all(claimed)
        return len(claimed)

    def _start_all(self, jobs: Sequence[ClaimedJob]) -> None:
        self._held.update(job.token for job in jobs)
        self._start(jobs)

    def _put_off(self, *, is_busy: bool) -> None:
        pause = FIRST_PAUSE * 2.0 ** min(self._failures, 10)
        if is_busy:
            pause = max(pause, BUSY_PAUSES * (time.monotonic() - self._looked_at))
        if self._soonest is not None:
            # Who has just started a job waits for the moment; who came in vain lets others go first.
            pause = max(self._soonest, pause if self._failures else 0.0)
        self._failures += 1
        self._again_at = time.monotonic() + min(pause, settings.POLL_SECONDS)

    def _report_left(self, candidates: Sequence[Line], claimed: set[Line]) -> None:
        """Report the first jobs of lines that might start and do not, again and again: somebody holds their rows."""
        now = time.monotonic()
        left = {line.job_id: self._left.get(line.job_id, now) for line in candidates if line not in claimed}
        self._left = left
        for job_id, since in left.items():
            if now - since > PATIENCE:
                self._passed_over(job_id)
