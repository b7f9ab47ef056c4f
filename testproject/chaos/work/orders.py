"""Orders: charged, reserved, waited for, shipped; undone if they fail or are cancelled. The money must add up."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from django_reliable_jobs import current_job, emit_event, exponential, step, task, wait_for_event
from django_reliable_jobs.engine import lifecycle
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.exceptions import EventTimeout
from django_reliable_jobs.models import Job
from testproject.chaos.kind import Kind, spend
from testproject.chaos.models import Entry

PATIENCE_SECONDS = 6.0


@task(max_attempts=3, backoff=exponential(first=0.1, maximum=1), queue_name="business")
def fulfil(order: int, has_stock: bool, pause: float) -> None:
    step("charge", charge, pause, undo=refund)
    step("reserve", reserve, undo=put_back, atomic=True)
    if not has_stock:
        raise ValueError("there is none left")
    try:
        wait_for_event(f"chaos shipped {order}", timeout=PATIENCE_SECONDS)
    except EventTimeout:
        raise ValueError("nobody ships it") from None
    step("ship", ship, pause, undo=recall)


def charge(pause: float) -> str:
    spend(pause)
    return _enter("charged")


def refund(key: str, pause: float) -> None:
    spend(pause)
    _enter("refunded")


def reserve() -> None:
    """Write in the transaction that keeps the step: a second call would be a second row."""
    Entry.objects.create(job_id=current_job().id, what="reserved")


def put_back(nothing: None) -> None:
    Entry.objects.create(job_id=current_job().id, what="put back")


def ship(pause: float) -> str:
    spend(pause)
    return _enter("shipped")


def recall(key: str, pause: float) -> None:
    _enter("recalled")


def _enter(what: str) -> str:
    """Do something outside, once per key whatever the number of requests."""
    key = current_job().idempotency_key(what)
    Entry.objects.get_or_create(key=key, defaults={"job_id": current_job().id, "what": what})
    return key


def enqueue(dice: Random) -> Sequence[Job]:
    return [fulfil.enqueue(dice.getrandbits(48), dice.random() < 0.7, round(dice.uniform(0, 0.1), 3))]


def ship_and_cancel_some(dice: Random) -> None:
    live = list(Job.objects.filter(task=fulfil.name, status__in=Job.LIVE).values_list("id", "args")[:100])
    for _, args in live:
        if dice.random() < 0.7:
            emit_event(f"chaos shipped {args[0]}")
    chosen = [job_id for job_id, _ in dice.sample(live, min(len(live), 2))]
    lifecycle.cancel(default_database(), chosen, reason="the customer said so")
    Entry.objects.bulk_create([Entry(job_id=job_id, what="cancelled") for job_id in chosen])


# By job: how often each thing was done.
_SUMS = """
    SELECT jobs.id, jobs.status, sums.* FROM jobs CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE what = 'charged') AS charged,
                  count(*) FILTER (WHERE what = 'refunded') AS refunded,
                  count(*) FILTER (WHERE what = 'reserved') AS reserved,
                  count(*) FILTER (WHERE what = 'put back') AS put_back,
                  count(*) FILTER (WHERE what = 'shipped') AS shipped,
                  count(*) FILTER (WHERE what = 'recalled') AS recalled
             FROM chaos_entry entry WHERE entry.job_id = jobs.id) sums"""


def _sums(fault: str) -> str:
    return f"SELECT id FROM ({_SUMS}) sums WHERE {fault}"  # noqa: S608 - constants


KIND = Kind(
    name="orders",
    weight=4,
    enqueue=enqueue,
    meddle=ship_and_cancel_some,
    forbidden={
        "money was taken that was neither refunded nor shipped for": _sums("charged <> refunded + shipped - recalled"),
        "something was done twice": _sums("greatest(charged, refunded, reserved, put_back, shipped, recalled) > 1"),
        "goods are reserved that were not shipped": _sums("reserved <> put_back + shipped - recalled"),
        "an order succeeded and was not shipped": _sums("status = 'SUCCEEDED' AND (shipped = 0 OR refunded > 0)"),
        "an order failed and was shipped": _sums("status <> 'SUCCEEDED' AND shipped > recalled"),
        "an order could not be undone": "SELECT id FROM jobs WHERE compensation IN ('running', 'failed')",
        "an order is cancelled, and nobody cancelled it": """
            SELECT id FROM jobs WHERE status = 'CANCELLED'
               AND id NOT IN (SELECT job_id FROM chaos_entry WHERE what = 'cancelled')""",
    },
)
