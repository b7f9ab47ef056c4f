"""What a worker takes in: where it looks, how much it claims, in what order it starts it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django.db import Error as DatabaseError

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import claim, exchange, heartbeat, maintenance, waits
from django_reliable_jobs.engine.claim import Arm, ClaimedJob, Head
from django_reliable_jobs.processes.limited import LimitedIntake
from django_reliable_jobs.processes.queues import advanced, seated
from django_reliable_jobs.processes.speed import Speed
from django_reliable_jobs.processes.suspicion import Suspicion
from django_reliable_jobs.processes.tally import has_listeners

if TYPE_CHECKING:
    from django_reliable_jobs.processes.worker import Worker

MOST_IN_HAND = 2000
AHEAD_SECONDS = 0.04  # of work are held, or one job for each thread; half of it is claimed at once
EXCHANGES_AHEAD = 4  # so long, if the database is far away: else claims shrink until the threads starve
LONGEST_EXCHANGE = 0.25  # seconds that count; what waits for a lock says nothing of the way
FIRST_PAUSE = 0.05  # seconds; doubles up to POLL_SECONDS while there is nothing to do
ORPHAN_SECONDS = 30.0  # after a lost connection, claims of ours are looked for; and so often anyhow


class Intake:
    """The claiming half of a worker, on the worker's own thread.

    A look finds the queues and priorities that have a ready job, at least every POLL_SECONDS; between two looks claims
    go on from the heads that it found. `start` is given the claimed jobs, `passed_over` the id of each that was locked.
    """

    def __init__(
        self, worker: Worker, *, start: Callable[[Sequence[ClaimedJob]], None], passed_over: Callable[[int], None]
    ) -> None:
        self._worker = worker
        self._start = start
        self._passed_over = passed_over
        self._limited = LimitedIntake(worker, start=start, passed_over=passed_over)
        self._suspicion = Suspicion()
        self._is_held_back = False
        self._heads: list[Head] = []
        self._next_due: float | None = None  # seconds after the last look
        self._looked_at = self._look_at = 0.0
        self._is_fresh = False  # nothing was claimed since the last look
        self._arrived: list[ClaimedJob] = []  # claimed, and to be started when the next exchange is on its way
        self._line: Arm | None = None  # behind the last job that was claimed
        self.notified: str | None = None  # a queue in which a job is ready; written by the listener
        self._pause = FIRST_PAUSE
        self._idle_since: float | None = None
        self._orphans_until = self._orphans_sought_at = 0.0
        self._exchange_seconds = 0.0
        self.speed = Speed()

    @property
    def in_hand(self) -> int:
        """How many jobs have a thread, wait for one or have just arrived."""
        return self._worker.recorder.in_hand + len(self._arrived)

    @property
    def target(self) -> int:
        """How many jobs to hold: one for each thread, or as many as end in AHEAD_SECONDS or a few exchanges."""
        ahead = max(AHEAD_SECONDS, EXCHANGES_AHEAD * self._exchange_seconds)
        return max(self._worker.threads, min(self.speed.in_seconds(ahead), MOST_IN_HAND))

    @property
    def surplus(self) -> int:
        """How many jobs are to end before the next exchange: it is for half of what is in hand, while the threads run
        the other half. Neither waits for the other, nor for jobs that threads are at when others have arrived: one
        may be long.
        """
        threads = self._worker.threads
        return self.in_hand - max(self.target // 2 + (threads if self._arrived else 0), threads)

    def wanted(self) -> int:
        """Return how many jobs may be claimed now."""
        worker, target = self._worker, self.target
        if worker.jobs_left is not None:
            target = min(target, worker.jobs_left)
        if worker.is_lease_in_doubt:
            self._is_held_back = True
            return 0
        self._is_held_back = self._suspicion.holds_back([*self._heads, *self._limited.suspects], worker.recorder)
        if self._is_held_back:
            return 0
        return min(target - self.in_hand, max(worker.threads, target // 2))

    def exchange(self, wanted: int) -> bool:
        """Record what succeeded and claim up to `wanted` jobs, in one round trip; return whether there was either.

        What it claims may have to wait until the next is on its way, or for `hand_out`.
        """
        is_to_look = wanted > 0 and time.monotonic() >= self._look_at
        if is_to_look or self._limited.waits:
            self.hand_out()
        if is_to_look:
            if self._claim_next():
                return True
            self._look()
        if taken := self._take_limited():
            wanted = self.wanted()
        heads = self._limited.have_turn(self._heads) if wanted > 0 else ()
        seats = self._worker.queues.seats(heads, wanted)
        arms = self._worker.queues.arms(heads, seats, wanted)
        if not arms and not self._worker.recorder.successes():
            return taken > 0
        self._exchange(arms, seats, wanted)
        return True

    def take_in(self) -> None:
        """Do what the last exchange left to do: start what it claimed, forget what it wrote."""
        self._worker.recorder.forget_written()
        arrived, self._arrived = self._arrived, []
        if arrived:
            self._start(arrived)

    def hand_out(self) -> None:
        """Give the threads all that there is to do, before a wait."""
        self.take_in()
        self._worker.pool.hand_out()

    def _claim_next(self) -> bool:
        """Claim the job of a notification that wakes an idle worker, if it stands in the line of the last one.

        That spares it the time of a look, which comes next and finds the others.
        """
        name, self.notified = self.notified, None
        line, worker = self._line, self._worker
        if self._idle_since is None or self.in_hand or worker.queues.has_order:
            return False
        if line is None or line.queue_name != name:
            return False
        job = claim.claim_next(worker.using, worker.identity.id, line)
        if job is not None:
            self._start([job])
            self._stand_behind(job)
        return job is not None

    def _stand_behind(self, job: ClaimedJob) -> None:
        self._pause = FIRST_PAUSE
        self._line = Arm(job.queue_name, job.priority, 1, job.due, job.id)

    def _take_limited(self) -> int:
        worker = self._worker
        if self._is_held_back:
            return 0
        in_hand = worker.recorder.in_hand
        alone = self._suspicion.may_claim(in_hand, worker.threads - in_hand)
        return self._limited.take(self._heads, is_brisk=self.target > worker.threads, alone=alone)

    def has_nothing_left(self, since: float) -> bool:
        """Return whether a look later than `since` (monotonic) found nothing ready and nothing due."""
        return not self._heads and not self._limited.waits and self._looked_at > since

    def pause(self) -> float:
        """Return the seconds to wait for a wake-up before the next look; 0: look at once.

        The worker is marked idle first, then looks once more: an enqueuer that saw no idle worker has committed before
        that look. Then it polls, more and more slowly, and sleeps past no due moment.
        """
        if self._idle_since is None:
            heartbeat.mark_idle(self._worker.using, self._worker.identity.id, idle=True)
            self._idle_since = time.monotonic()
            self._look_at = 0.0
            return 0.0
        pause = self._pause
        self._pause = min(self._pause * 2, settings.POLL_SECONDS)
        moments = [moment for moment in (self._next_due, self._limited.delay()) if moment is not None]
        return min(pause, *(max(moment, 0.001) for moment in moments)) if moments else pause

    def look_now(self) -> None:
        """Look with the next exchange."""
        self._look_at = 0.0

    def wake(self) -> None:
        """Look with the next exchange, and poll quickly after it."""
        self._look_at, self._pause = 0.0, FIRST_PAUSE
        self._limited.wake()

    def forget(self) -> None:
        """Start from nothing: the connection or the identity was lost. Claims of ours may have committed unseen."""
        self._heads, self._look_at, self._idle_since = [], 0.0, None
        self._arrived.clear()
        self._limited.forget()
        self.expect_orphans()

    def expect_orphans(self) -> None:
        """Look for claims of ours whose answer was lost, for a while: one may be on its way still. For any thread."""
        self._orphans_until = time.monotonic() + ORPHAN_SECONDS

    def _look(self) -> None:
        using = self._worker.using
        if time.monotonic() < self._orphans_until or time.monotonic() > self._orphans_sought_at + ORPHAN_SECONDS:
            self._adopt_orphans()
        seen = claim.look(using)
        if seen.has_news:
            waits.wake(using)
            seen = claim.look(using)
        if seen.next_due is not None and seen.next_due <= 0:
            # Nothing promoted: somebody else does it at this moment.
            seen = claim.look(using) if maintenance.promote(using) else seen._replace(next_due=FIRST_PAUSE)
        self._next_due = seen.next_due
        self._limited.saw(seen)
        served = [head for head in seen.heads if self._worker.queues.serves(head.queue_name)]
        self._heads = [head for head in served if not head.is_capped]
        self._is_fresh = True
        self._looked_at = time.monotonic()
        self._look_at = self._looked_at + settings.POLL_SECONDS

    def _adopt_orphans(self) -> None:
        # A claim whose answer was lost with its connection: ours by token and worker, but nobody runs it. Now and then
        # also without a cause: what was sent may arrive, and be done, long after the way was given up.
        self._orphans_sought_at = time.monotonic()
        worker = self._worker
        self._start(claim.find_orphans(worker.using, worker.identity.id, worker.recorder.tokens()))

    def _exchange(self, arms: list[Arm], seats: list[str], wanted: int) -> None:
        worker, limit = self._worker, len(seats) or wanted
        in_hand = self.in_hand
        free = max(worker.threads - in_hand, 0)
        successes = worker.recorder.successes()
        began_at = time.monotonic()
        try:
            written, claimed = exchange.exchange(
                worker.using,
                worker.identity.id,
                successes,
                arms,
                limit=limit if arms else 0,
                free=free,
                alone=self._suspicion.may_claim(in_hand, free),
                about_to_wait=self.hand_out,
            )
        except DatabaseError as error:
            worker.recorder.record_each_success(error)
            return
        took = min(time.monotonic() - began_at, LONGEST_EXCHANGE)
        self._exchange_seconds += (took - self._exchange_seconds) / 4
        worker.recorder.note_written(successes, written)
        if has_listeners():  # code of the project's, which may use the connection: not while an exchange is on its way
            worker.recorder.forget_written()
        self._arrived += seated(claimed, seats)
        if not worker.threads < limit == len(claimed):  # jobs do not end so fast, or nothing follows
            self.take_in()
        if arms:
            self._after_claim(arms, claimed, limit, free)

    def _after_claim(self, arms: list[Arm], claimed: list[ClaimedJob], limit: int, free: int) -> None:
        if free and self._is_fresh:
            self._report_passed_over(arms, claimed)
        self._is_fresh = False
        if not claimed:  # what is there is locked by others: look again after a pause
            self._heads, self._looked_at = [], 0.0
            return
        self._stand_behind(claimed[-1])
        self._heads = advanced(self._heads, claimed)
        if len(claimed) < limit:
            self._look_at = 0.0
        elif limit > self._worker.threads and self._idle_since and time.monotonic() - self._idle_since > 1:
            heartbeat.mark_idle(self._worker.using, self._worker.identity.id, idle=False)
            self._idle_since = None

    def _report_passed_over(self, arms: Sequence[Arm], claimed: Sequence[ClaimedJob]) -> None:
        """Report what is due for a second and was reached by this claim, but not taken."""
        taken = {job.id for job in claimed}
        place = {(arm.queue_name, arm.priority): number for number, arm in enumerate(arms)}
        reached = max((place[job.queue_name, job.priority] for job in claimed), default=len(arms))
        for head in self._heads:
            if head.waited > 1 and head.id not in taken and place.get(head[:2], len(arms)) <= reached:
                self._passed_over(head.id)
