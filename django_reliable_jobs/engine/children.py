"""What an attempt writes of the jobs that it starts and waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction

from django_reliable_jobs import arguments
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import enqueue, families
from django_reliable_jobs.engine.checkpoints import MINE
from django_reliable_jobs.engine.families import Member
from django_reliable_jobs.engine.steps import StepPort
from django_reliable_jobs.engine.transaction import LIMIT_IDLE, engine_cursor
from django_reliable_jobs.exceptions import InvalidCheckpoint, InvalidStep
from django_reliable_jobs.models import Batch, Job
from django_reliable_jobs.placement import Placement
from django_reliable_jobs.replay import Stored
from django_reliable_jobs.step_port import StepRecord, deleted

PAGE = 1000
MOST_FAILURES = 20

_NOW = "coalesce(%(moment)s::timestamptz, clock_timestamp())"

# The wait is there before the job waits.
WAIT_FOR_BATCHES = f"""
WITH {MINE}, saved AS (
    INSERT INTO django_reliable_jobs_checkpoint
           (job_id, run, name, kind, state, value, token, started_at, saved_at)
    SELECT mine.id, mine.run, %(name)s, 'children', 'waiting', %(batches)s::jsonb, %(token)s, {_NOW}, {_NOW} FROM mine
        ON CONFLICT (job_id, run, name, kind) DO UPDATE SET token = excluded.token
    RETURNING job_id
), waiting AS (
    INSERT INTO django_reliable_jobs_wait (job_id, batches, since)
    SELECT job_id, %(batches)s::jsonb, {_NOW} FROM saved
        ON CONFLICT (job_id)
        DO UPDATE SET event = NULL, batches = excluded.batches, since = excluded.since, is_satisfied = false
)
SELECT {LIMIT_IDLE} FROM saved
"""

FORGET_WAIT = "DELETE FROM django_reliable_jobs_wait WHERE job_id = %(job_id)s"


class ChildPort(StepPort):
    """Adds children to steps."""

    def start_children(
        self, name: str, placement: Placement[..., Any], calls: tuple[Any, Any] | Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Enqueue children, of one call as (args, kwargs) or of a list, with their record; return what is kept."""
        with transaction.atomic(using=self._using):
            batch_id = families.create(self._using, parent_id=self.job_id)
            own = replace(placement, database=self._using, batch_id=batch_id, parent_id=self.job_id)
            if isinstance(calls, tuple):
                job = enqueue.enqueue(own, *calls)
                if not job.created:
                    raise InvalidStep(
                        f"{placement.task.name}: job {job.pk} holds the same unique key, so that this one has no child"
                    )
                kept = {"batch": batch_id, "job": job.pk}
            else:
                count = sum(job.created for job in enqueue.enqueue_many(own, calls))
                kept = {"batch": batch_id, "count": count}
                if not count:
                    families.finish(self._using, [batch_id])
            self.record(StepRecord(name, placement.task.name, "done", arguments.dump(kept), kind="child"))
        return kept

    def wait_for_batches(
        self, name: str, batches: Sequence[int], jobs: Sequence[int] | None, count: int = 0
    ) -> Stored | None:
        """Keep what came of batches that are over, or write down that they are waited for and return None.

        `jobs`: each of them is kept with its result; None: there are `count`, and only some failures are kept.
        """
        is_open = Batch.objects.using(self._using).filter(pk__in=list(batches), finished_at=None).exists()
        if is_open:
            self._execute(WAIT_FOR_BATCHES, name=name, batches=arguments.dump(list(batches)))
            return None
        value, failed = self._outcome_of_all(batches, count) if jobs is None else self._outcome(batches, jobs)
        try:
            text = arguments.dump_checkpoint(
                "the results of the children", value, task=self._task, max_bytes=settings.MAX_RESULT_BYTES
            )
        except InvalidCheckpoint as error:
            raise InvalidStep(f"{error} start_children() keeps them with the children.") from None
        state = "failed" if failed else "done"
        with transaction.atomic(using=self._using):
            self.record(StepRecord(name, None, state, text, kind="children"))
            self._forget_wait()
        return Stored(name, "children", state, text, None, 1, None, None, False)

    def results(self, batch_id: int) -> Iterator[Any]:
        """Yield the results of the children of a batch, page by page, in the order in which they were started."""
        for member in self._members([batch_id]):
            yield None if member.result is None else arguments.load(member.result)

    def _outcome_of_all(self, batches: Sequence[int], count: int) -> tuple[Any, bool]:
        rows = Batch.objects.using(self._using).filter(pk__in=list(batches))
        if sum(succeeded or 0 for succeeded in rows.values_list("succeeded", flat=True)) == count:
            return {"failures": []}, False
        failures, missing = list[dict[str, Any]](), count
        for member in self._members(batches):
            missing -= 1
            if member.status != Job.Status.SUCCEEDED and len(failures) < MOST_FAILURES:
                failures.append(_told(member))
        return {"failures": [*([deleted(missing)] if missing > 0 else []), *failures]}, True

    def _outcome(self, batches: Sequence[int], jobs: Sequence[int]) -> tuple[Any, bool]:
        found = {member.job_id: member for member in self._members(batches)}
        members = [found.get(job_id) or Member(job_id, "deleted", None, "its row is gone") for job_id in jobs]
        failures = [_told(member) for member in members if member.status != Job.Status.SUCCEEDED]
        if failures:
            return {"failures": failures[:MOST_FAILURES]}, True
        return {"results": [None if each.result is None else arguments.load(each.result) for each in members]}, False

    def _members(self, batches: Sequence[int]) -> Iterator[Member]:
        page, after = PAGE, 0
        while page == PAGE:
            members = families.members(self._using, batches, after=after, limit=PAGE)
            yield from members
            page = len(members)
            after = members[-1].job_id if members else after

    def _forget_wait(self) -> None:
        with engine_cursor(self._using) as cursor:
            cursor.execute(FORGET_WAIT, {"job_id": self.job_id})


def _told(member: Member) -> dict[str, Any]:
    return {"job": member.job_id, "status": member.status, "reason": (member.reason or "")[:500]}
