"""What an attempt writes of its steps, sleeps and waits: one fenced statement each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import InterfaceError, OperationalError, connections, transaction

from django_reliable_jobs import clock
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.checkpoints import MINE, AttemptPort
from django_reliable_jobs.engine.transaction import (
    LIMIT_IDLE,
    around,
    engine_cursor,
    is_in_transaction_by_hand,
    open_blocks,
    short_transaction,
)
from django_reliable_jobs.engine.undoing import MAY_BE_UNDONE
from django_reliable_jobs.exceptions import Ending, InvalidStep, LeaseLost, Suspension
from django_reliable_jobs.replay import Asked, Replay, Stored
from django_reliable_jobs.retry import DEFAULT_POLICY, RetryPolicy

if TYPE_CHECKING:
    from django_reliable_jobs.step_port import StepRecord
    from django_reliable_jobs.steps import RunningStep

logger = logging.getLogger("django_reliable_jobs")

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"
_STORED = f"""name, kind, state, value::text, function, tries, error, until, coalesce(until <= {_NOW}, false)"""

HISTORY = f"""
SELECT {_STORED} FROM django_reliable_jobs_checkpoint
 WHERE job_id = %(job_id)s AND run = %(run)s AND kind <> 'checkpoint' ORDER BY id
"""

# What is done stays done: a timeout that comes after the COMMIT, while its hooks run, is too late.
RECORD = f"""
WITH {MINE}
INSERT INTO django_reliable_jobs_checkpoint AS saved
       (job_id, run, name, kind, state, value, function, args, undo, is_atomic, tries, error, token, started_at,
        saved_at, undo_state)
SELECT mine.id, mine.run, %(name)s, %(kind)s, %(state)s, %(value)s::jsonb, %(function)s, %(args)s::jsonb, %(undo)s,
       %(is_atomic)s, %(tries)s, %(error)s, %(token)s, {_NOW} - make_interval(secs => %(took)s), {_NOW}, %(undo_state)s
  FROM mine
    ON CONFLICT (job_id, run, name, kind)
    DO UPDATE SET
       state = CASE WHEN saved.state = 'done' THEN saved.state ELSE excluded.state END,
       value = CASE WHEN saved.state = 'done' THEN saved.value ELSE excluded.value END,
       tries = CASE WHEN saved.state = 'done' THEN saved.tries ELSE excluded.tries END,
       error = CASE WHEN saved.state = 'done' THEN saved.error ELSE excluded.error END,
       args = excluded.args, undo = excluded.undo, is_atomic = excluded.is_atomic, token = excluded.token,
       saved_at = excluded.saved_at, undo_state = excluded.undo_state
RETURNING {LIMIT_IDLE}
"""

# Newest first.
TO_UNDO = f"""
SELECT name, function, state, value::text, args::text, undo, is_atomic, coalesce(tries, 0), coalesce(undo_tries, 0)
  FROM django_reliable_jobs_checkpoint saved
 WHERE job_id = %(job_id)s AND run = %(run)s AND {MAY_BE_UNDONE}
 ORDER BY id DESC
"""

# What is undone stays so: an error that comes after the COMMIT, from a hook or as its answer is lost, is too late. The
# lock on the job waits for a session that was lost in the middle of it.
RECORD_UNDO = f"""
WITH {MINE}, recorded AS (
    UPDATE django_reliable_jobs_checkpoint saved
       SET undo_state = %(state)s, undo_tries = %(tries)s, undo_error = %(error)s, undone_at = {_NOW}, token = %(token)s
      FROM mine
     WHERE saved.job_id = mine.id AND saved.run = mine.run AND saved.name = %(name)s AND saved.kind = 'step'
       AND saved.undo_state IS DISTINCT FROM 'done'
    RETURNING saved.id
)
SELECT (SELECT count(*) FROM recorded) > 0, {LIMIT_IDLE} FROM mine
"""

_UNTIL = f"coalesce(%(until)s::timestamptz, {_NOW} + make_interval(secs => %(delay)s))"
_LEFT = f"extract(epoch FROM {{}} - {_NOW})::float8"

# Who sleeps waits for nothing else: a wait that is left of an earlier run, or of before a clock went back, would wake
# it at once, again and again.
SLEEP = f"""
WITH {MINE}, over AS (
    DELETE FROM django_reliable_jobs_wait wait USING mine WHERE wait.job_id = mine.id
)
INSERT INTO django_reliable_jobs_checkpoint AS saved
       (job_id, run, name, kind, state, value, token, started_at, saved_at, until)
SELECT mine.id, mine.run, %(name)s, 'sleep', 'waiting', 'null', %(token)s, {_NOW}, {_NOW}, {_UNTIL} FROM mine
    ON CONFLICT (job_id, run, name, kind) DO UPDATE SET token = excluded.token
RETURNING {_LEFT.format("saved.until")}
"""

# Looks for the event and takes note of it, or of the wait, in one statement: the wait is there before the job waits.
WAIT_FOR_EVENT = f"""
WITH {MINE}, event AS (
    SELECT payload FROM django_reliable_jobs_event WHERE name = %(event)s
), saved AS (
    INSERT INTO django_reliable_jobs_checkpoint AS saved
           (job_id, run, name, kind, state, value, token, started_at, saved_at, until)
    SELECT mine.id, mine.run, %(name)s, 'event', CASE WHEN event.payload IS NULL THEN 'waiting' ELSE 'done' END,
           coalesce(event.payload, 'null'), %(token)s, {_NOW}, {_NOW}, {_UNTIL}
      FROM mine LEFT JOIN event ON true
        ON CONFLICT (job_id, run, name, kind)
        DO UPDATE SET value = excluded.value, token = excluded.token, saved_at = excluded.saved_at,
           state = CASE WHEN excluded.state = 'waiting' AND saved.until <= {_NOW} THEN 'failed' ELSE excluded.state END
    RETURNING job_id, {_STORED}, {_LEFT.format("until")} AS left_over
), waiting AS (
    INSERT INTO django_reliable_jobs_wait (job_id, event, since)
    SELECT job_id, %(event)s, {_NOW} FROM saved WHERE state = 'waiting'
        ON CONFLICT (job_id)
        DO UPDATE SET event = excluded.event, batches = NULL, since = excluded.since, is_satisfied = false
), over AS (
    DELETE FROM django_reliable_jobs_wait wait USING saved WHERE wait.job_id = saved.job_id AND saved.state <> 'waiting'
)
SELECT saved.*, {LIMIT_IDLE} FROM saved
"""

# The lock waits for a session that was lost in the middle of its COMMIT; what it did is known after that.
LOCK = "SELECT 1 FROM django_reliable_jobs_job WHERE id = %(job_id)s FOR NO KEY UPDATE"
READ_BACK = """
SELECT 1 FROM django_reliable_jobs_checkpoint
 WHERE job_id = %(job_id)s AND run = %(run)s AND name = %(name)s AND kind = 'step' AND state = 'done'
"""


class StepToUndo(NamedTuple):
    """A step that was done, or may have been, with what its undo needs. JSON as text."""

    name: str
    function: str
    state: str  # done | trying, failed: nobody knows
    value: str
    args: str
    undo: str
    is_atomic: bool
    tries: int
    undo_tries: int


class StepPort(AttemptPort):
    """What steps are written through, with what this attempt knows of them."""

    def __init__(
        self,
        using: str,
        *,
        job_id: int,
        token: int,
        run: int,
        task: str,
        policy: RetryPolicy = DEFAULT_POLICY,
        module: str = "",
        is_atomic: bool = False,
        is_first_claim: bool = False,
    ) -> None:
        super().__init__(using, job_id=job_id, token=token, run=run, task=task)
        self.policy = policy
        self.module = module  # of the task: where functions are found by name
        self.running: RunningStep | None = None
        self.suspension: Suspension | None = None
        self.ending: Ending | None = None
        self.fault: Exception | None = None
        self.replay: Replay | None = None
        self._is_atomic = is_atomic
        self._is_first_claim = is_first_claim

    @property
    def job_id(self) -> int:
        return int(self._key["job_id"])

    def ask(self, name: str, kind: str, function: str | None = None) -> Asked:
        """Return what the history has of what the code asks for next."""
        if self.replay is None:
            job = f"job {self._key['job_id']} ({self._task}), run {self._key['run']}"
            self.replay = Replay(job, [] if self._is_first_claim else self._history())
        return self.replay.ask(name, kind, function)

    def refuse_in_transaction(self, what: str) -> None:
        """Raise InvalidStep in an atomic task or an open transaction: a rollback would forget what was done."""
        if self._is_atomic:
            raise InvalidStep(f"{what} stands in an atomic task, all of which is one transaction: declare the task"
                              " without atomic=True, and give it to the steps that need it")  # fmt: skip
        allowed = around.get()
        inside = [alias for alias, blocks in open_blocks().items() if blocks > allowed.get(alias, 0)]
        if inside or is_in_transaction_by_hand(self._using):
            alias = next(iter(inside), self._using)
            raise InvalidStep(
                f"{what} stands inside a transaction (on the database {alias!r}), whose rollback would forget what"
                " was done: move it out of `atomic()`. step(…, atomic=True) runs its function in a transaction"
            )

    def record(self, record: StepRecord) -> None:
        """Write what came of a step. Raises LeaseLost if the attempt was replaced."""
        self._write(RECORD, **record._asdict(), moment=clock.moment())

    def try_to_record(self, record: StepRecord) -> bool:
        """Write what came of a step; return whether the connection held. Another one is opened for the next try."""
        return self.holds(lambda: self.record(record))

    def holds(self, write: Callable[[], object]) -> bool:
        """Write; return whether the connection held. Another one is opened for the next try."""
        connection = connections[self._using]
        try:
            write()
        except (OperationalError, InterfaceError):
            if connection.in_atomic_block or connection.is_usable():
                raise
            connection.close()
            return False
        return True

    @contextmanager
    def recording(self) -> Iterator[Callable[[StepRecord], None]]:
        """Run a block in one transaction with the record of its step; the block calls what it is given, last.

        After an error at COMMIT or later, the outcome is read back before the error is raised or forgotten.
        """
        recorded: StepRecord | None = None

        def record(given: StepRecord) -> None:
            nonlocal recorded
            self.record(given)
            recorded = given

        try:
            with transaction.atomic(using=self._using):
                yield record
        except Exception as error:
            if recorded is None or connections[self._using].in_atomic_block or not self._was_recorded(recorded.name):
                raise
            if not isinstance(error, OperationalError | InterfaceError):
                logger.exception("the step %r is done; a hook that was to follow its COMMIT failed", recorded.name)

    def steps_to_undo(self) -> list[StepToUndo]:
        """Return the steps of this run that are to be undone, newest first."""
        with engine_cursor(self._using) as cursor:
            cursor.execute(TO_UNDO, self._key)
            return [StepToUndo._make(row) for row in cursor.fetchall()]

    def record_undo(self, name: str, state: str, tries: int, error: str | None = None) -> bool:
        """Write what came of the undo of a step; return False if it was done before. Raises LeaseLost if the attempt
        was replaced.
        """
        return bool(self._execute(RECORD_UNDO, name=name, state=state, tries=tries, error=error)[0])

    def sleep(self, name: str, until: float | datetime) -> float:
        """Write down a sleep; return the seconds that are left of it."""
        row = self._execute(SLEEP, name=name, **_moment_or_delay(until))
        return float(row[0])

    def wait_for_event(self, name: str, event: str, timeout: float | None) -> tuple[Stored, float | None]:
        """Take the event, or write down that it is waited for; return that, and the seconds until it is given up."""
        row = self._execute(WAIT_FOR_EVENT, name=name, event=event, **_moment_or_delay(timeout))
        return Stored._make(row[1:10]), row[10]

    def _history(self) -> list[Stored]:
        with engine_cursor(self._using) as cursor:
            cursor.execute(HISTORY, {**self._key, "moment": clock.moment()})
            return [Stored._make(row) for row in cursor.fetchall()]

    def _execute(self, statement: str, **parameters: Any) -> tuple[Any, ...]:
        values = {**self._key, "lease": settings.LEASE_SECONDS, "moment": clock.moment(), **parameters}
        with engine_cursor(self._using) as cursor:
            cursor.execute(statement, values)
            row: tuple[Any, ...] | None = cursor.fetchone()
        if row is None:
            raise LeaseLost(f"job {self._key['job_id']} was given to another attempt; nothing of this one is written")
        return row

    def _was_recorded(self, name: str) -> bool:
        connections[self._using].close()
        with short_transaction(self._using) as cursor:
            cursor.execute(LOCK, self._key)
            cursor.execute(READ_BACK, {**self._key, "name": name})
            return cursor.fetchone() is not None


def _moment_or_delay(given: float | datetime | None) -> dict[str, Any]:
    is_moment = isinstance(given, datetime)
    return {"until": given if is_moment else None, "delay": None if is_moment else given}
