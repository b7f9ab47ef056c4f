"""The jobs that a worker holds, and the recording of how they ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from django.db import Error as DatabaseError

from django_reliable_jobs.context import StopReason
from django_reliable_jobs.engine import exchange, isolation, lifecycle
from django_reliable_jobs.engine.isolation import Refused
from django_reliable_jobs.engine.lifecycle import Ending
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes.execution import RELEASED, SUCCEEDED
from django_reliable_jobs.processes.judging import cut_off, unrecordable
from django_reliable_jobs.processes.pool import HeldJob
from django_reliable_jobs.processes.reporting import write_progress

logger = logging.getLogger("django_reliable_jobs")

LOCKED_PAUSE = 0.05  # seconds until a row that somebody held is tried again
REFUSED_PAUSE = 30.0  # seconds until a row that the database refused to change is tried again


class Recorder:
    """Keeps each held job until its ending is written, or known to be somebody else's.

    Used by the worker's own thread; the heartbeat only reads `tokens` and raises flags.
    """

    def __init__(
        self,
        using: str,
        worker: str,
        *,
        on_settled: Callable[[Collection[int]], None],
        on_written: Callable[[Sequence[HeldJob]], None] = lambda written: None,
    ) -> None:
        self.using = using
        self.worker = worker
        self._on_settled = on_settled  # told the tokens of jobs that this process has nothing more to do with
        self._on_written = on_written  # told the jobs whose ending is committed
        self._held: dict[int, HeldJob] = {}
        self._ended: list[HeldJob] = []  # the held whose ending waits to be written
        self._written: list[HeldJob] = []  # the held whose success is written, to be forgotten
        self._not_before: dict[int, float] = {}  # when to try an ending again that could not be written
        self._told: list[HeldJob] = []  # have ended, and what they said last of how far they were is not written
        self._abandoned: dict[int, HeldJob] = {}  # no longer held, but a thread runs it still
        self._changing = threading.Lock()

    @property
    def in_hand(self) -> int:
        """How many jobs have a thread or wait for one."""
        return len(self._held) - len(self._ended) - len(self._written) + len(self._abandoned)

    @property
    def is_empty(self) -> bool:
        return not self._held

    @property
    def all_recorded(self) -> bool:
        """Whether no ending waits to be written."""
        return not self._ended

    def holds(self, token: int) -> bool:
        return token in self._held

    def tokens(self) -> set[int]:
        with self._changing:
            return set(self._held)

    def running(self) -> list[HeldJob]:
        with self._changing:
            return [held for held in self._held.values() if held.started is not None and held.ended is None]

    def in_threads(self) -> list[HeldJob]:
        """Return what runs: the held jobs and the abandoned ones."""
        with self._changing:
            abandoned = list(self._abandoned.values())
        return [*self.running(), *abandoned]

    def running_or_next(self) -> list[HeldJob]:
        """Return the held jobs that have not ended."""
        with self._changing:
            return [held for held in self._held.values() if held.ended is None]

    def hold(self, jobs: Iterable[HeldJob]) -> None:
        with self._changing:
            self._held.update((held.job.token, held) for held in jobs)

    def add_ended(self, held: HeldJob) -> None:
        """Take note of a job that has ended; one that is no longer held, or was replaced, is forgotten."""
        if held.job.token not in self._held:
            self._on_settled([held.job.token])
            with self._changing:
                self._abandoned.pop(held.job.token, None)
            return
        if self._held[held.job.token] is not held:  # it was cut off, and its end is decided
            return
        if held.progress.said is not None:
            self._told.append(held)
        if held.outcome is None or held.outcome.is_recorded:
            self._forget([held.job.token])
            if held.outcome is not None:
                self._on_written([held])
        else:
            self._ended.append(held)

    def flag(self, tokens: Collection[int] | None, reason: StopReason, *, insists: bool = True) -> None:
        """Ask jobs (None: all) to end. The first reason stays, but a lost lease goes before all others."""
        now = time.monotonic()
        with self._changing:
            for token, held in self._held.items():
                if tokens is not None and token not in tokens:
                    continue
                flag = held.flag
                if flag.reason is None or (reason == "lost" != flag.reason) or (insists and not flag.insists):
                    flag.reason = reason if flag.reason is None or reason == "lost" else flag.reason
                    flag.raised_at, flag.insists = now, insists

    def abandon(self, unstarted: Sequence[HeldJob]) -> None:
        """Forget every held job: the lease was lost, and with it the right to record anything.

        What a thread runs at this moment still counts as in hand, and is pressed to end. `unstarted` will not start.
        """
        self.forget_written()
        self.flag(None, "lost")
        self._on_settled(self.tokens())
        gone = {held.job.token for held in unstarted}
        with self._changing:
            self._abandoned |= {
                token: held for token, held in self._held.items() if held.ended is None and token not in gone
            }
            self._held.clear()
        self._ended.clear()
        self._not_before.clear()

    def successes(self) -> list[Ending]:
        """Return the successes that wait to be recorded by an exchange."""
        now = time.monotonic()
        return [_ending(held, now) for held in self._due() if held.outcome.status == SUCCEEDED]  # type: ignore[union-attr]

    def record_each_success(self, error: DatabaseError) -> None:
        """Record successes after the database has refused an exchange because of one of them.

        Raises the error if it is no row's fault, or that of a row which was to be claimed.
        """
        if not isolation.is_of_a_row(error):
            raise error
        successes = self.successes()
        written, refused = isolation.write_each(lambda batch: exchange.exchange(self.using, 0, batch)[0], successes)
        self._settle_each(successes, written, refused)
        if not refused:
            raise error

    def record_others(self, *, about_to_wait: Callable[[], None] = lambda: None) -> None:
        """Record every ending that is not a success, and before it how far each ended job had come.

        `about_to_wait` is called first, if there is an ending.
        """
        now = time.monotonic()
        if self._told:
            write_progress(self.using, [(held.job, held.progress) for held in self._told])
            self._told.clear()
        others = [_ending(held, now) for held in self._due() if held.outcome.status != SUCCEEDED]  # type: ignore[union-attr]
        if others:
            about_to_wait()
            written, refused = isolation.write_each(
                lambda batch: lifecycle.end(self.using, batch, worker=self.worker), others
            )
            self._settle_each(others, written, refused)

    def release(self, unstarted: Sequence[HeldJob]) -> None:
        """Give back jobs that no thread has started: they keep their place in the line and use no attempt."""
        for held in unstarted:
            held.outcome = RELEASED
            self.add_ended(held)
        self.record_others()

    def cut_running(self) -> list[HeldJob]:
        """Take the jobs that still run as ended, by what they are cut off by; return them.

        What their threads come to from here on is not heard. To be recorded as the last act before the process exits:
        nothing runs twice at once.
        """
        running = self.running()
        for held in running:
            cut = HeldJob(held.job)
            cut.started, cut.ended, cut.outcome = held.started, time.monotonic(), cut_off(held.job, held.flag)
            cut.progress = held.progress
            self.hold([cut])
            self.add_ended(cut)
        return running

    def settle(self, endings: Sequence[Ending], written: set[int]) -> None:
        """Forget what was written; find out about the rest: try again what is locked, drop what was replaced."""
        self.note_written(endings, written)
        self.forget_written()

    def note_written(self, endings: Sequence[Ending], written: set[int]) -> None:
        """Do as `settle` does, but leave what was written to `forget_written`, for which there is time later."""
        tokens = {each.token for each in endings if each.job_id in written}
        self._written += [held for held in self._ended if held.job.token in tokens]
        self._ended = [held for held in self._ended if held.job.token not in tokens]
        if len(written) == len(endings):
            return
        missing = [each for each in endings if each.job_id not in written]
        locked, written_before, replaced = lifecycle.sort_out(self.using, missing)
        self._put_off([each.token for each in locked], LOCKED_PAUSE)
        self._forget([each.token for each in [*written_before, *replaced]])
        for each in replaced:
            logger.warning("job %s was replaced: what its attempt came to is dropped", each.job_id)

    def forget_written(self) -> None:
        """Forget the jobs whose ending is known to be written."""
        if self._written:
            self._forget([held.job.token for held in self._written])  # if that fails, it is done again
            written, self._written = self._written, []
            self._on_written(written)

    def _settle_each(self, endings: Sequence[Ending], written: set[int], refused: Sequence[Refused]) -> None:
        unwritable = {ending.token for ending, _ in refused}
        self.settle([each for each in endings if each.token not in unwritable], written)
        for ending, error in refused:
            logger.error("how job %s ended can't be recorded: %s", ending.job_id, error)
            if ending.outcome.status == Job.Status.DEAD:
                self._put_off([ending.token], REFUSED_PAUSE)
            else:
                self._held[ending.token].outcome = unrecordable(error)

    def _put_off(self, tokens: Sequence[int], pause: float) -> None:
        self._not_before |= dict.fromkeys(tokens, time.monotonic() + pause)

    def _due(self) -> list[HeldJob]:
        if not self._not_before:
            return self._ended
        now = time.monotonic()
        return [held for held in self._ended if self._not_before.get(held.job.token, 0.0) <= now]

    def _forget(self, tokens: Sequence[int]) -> None:
        self._on_settled(tokens)
        gone = set(tokens)
        with self._changing:
            for token in gone:
                self._held.pop(token, None)
            if self._not_before:
                self._not_before = {token: at for token, at in self._not_before.items() if token not in gone}
        self._ended = [held for held in self._ended if held.job.token not in gone]


def _ending(held: HeldJob, now: float) -> Ending:
    outcome = held.outcome
    assert outcome is not None  # noqa: S101 - only ended jobs get here
    job, started, ended = held.job, held.started or now, held.ended or now
    return Ending(job.id, job.token, outcome, now - started, now - ended, job.batch_id)
