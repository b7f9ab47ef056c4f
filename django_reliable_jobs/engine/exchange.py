"""The hot path: one statement, one round trip, one commit that records the last batch and claims the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from django_reliable_jobs.engine.claim import CLAIM, Arm, ClaimedJob, claim_parameters
from django_reliable_jobs.engine.endings_of_jobs import Ended, ended
from django_reliable_jobs.engine.lifecycle import SUCCEED, Ending, succeed_parameters
from django_reliable_jobs.engine.transaction import engine_cursor, short_transaction
from django_reliable_jobs.models import Job

# The finished rows are RUNNING, the claimed ones READY: the two halves never meet. What was written is nearly always
# all, so that only what was not is named.
EXCHANGE = f"""
WITH {SUCCEED}, {CLAIM}
SELECT position, {", ".join(ClaimedJob._fields)} FROM taken
       AS taken(position, {", ".join(ClaimedJob._fields)})
 UNION ALL
SELECT NULL, unwritten.id, {", ".join(["NULL"] * (len(ClaimedJob._fields) - 1))}
  FROM unnest(%(ids)s::bigint[]) unwritten(id)
 WHERE unwritten.id NOT IN (SELECT id FROM succeeded)
"""


def exchange(
    using: str,
    worker_id: int,
    successes: Sequence[Ending],
    arms: Sequence[Arm] = (),
    *,
    limit: int = 0,
    free: int = 0,
    alone: bool = False,
    about_to_wait: Callable[[], None] = lambda: None,
) -> tuple[set[int], list[ClaimedJob]]:
    """Record successes and claim at most `limit` jobs; return the ids written, and the claimed in the order to start
    them.

    `about_to_wait` is called when nothing is left to do but to wait for the answer; it must not use the connection.

    `free` is how many can start at once: what must not start twice is claimed for those only. `alone`: nothing else is
    in hand, so that a job that lost its worker before may be claimed.

    Atomic: after an error nothing of it happened, or (the connection broke between COMMIT and its answer) all of it.
    """
    parameters = succeed_parameters(successes) | claim_parameters(worker_id, arms, limit=limit, free=free, alone=alone)
    batches = {each.job_id: each.batch_id for each in successes if each.batch_id is not None}
    # One statement is a transaction; the end of a batch takes more of them.
    with short_transaction(using) if batches else nullcontext():
        with engine_cursor(using, about_to_wait=about_to_wait) as cursor:
            cursor.execute(EXCHANGE, parameters)
            rows = cursor.fetchall()
        written = {each.job_id for each in successes}
        written.difference_update([row[1] for row in rows if row[0] is None])
        claimed = [ClaimedJob._make(row[1:]) for row in sorted([row for row in rows if row[0] is not None])]
        if batches:
            # The end of what is claimed here comes after this COMMIT: until then its batch has not ended, and then
            # whoever ends it looks.
            live, succeeded = {each.batch_id for each in claimed}, Job.Status.SUCCEEDED.value
            over = {each: batches[each] for each in written & set(batches) if batches[each] not in live}
            ended(using, [Ended(each, succeeded, "", batch_id=batch_id) for each, batch_id in over.items()])
    return written, claimed
