"""The order flow of the shop, its workers killed at every boundary of each step and each undo: the end is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from django_reliable_jobs.engine import lifecycle
from django_reliable_jobs.models import Attempt, Job
from testproject.shop.models import Order, Payment
from testproject.shop.tasks import fulfil_order
from tests import killing, orders
from tests.actors import wait_for
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

STEPS = ("charge", "reserve", "ship", "mail")
MOMENTS = [
    *(f"before {step}" for step in STEPS),
    *(f"after {step}" for step in STEPS),  # called, and not kept
    *(f"after {step} recorded" for step in STEPS),  # kept; of the atomic step, before its COMMIT
    *("before wait", "after wait", "before waiting", "after waiting"),
]


FAILING = ["before charge", "after charge", "after charge recorded", "before reserve"]
UNDONE_WHEN_FAILED = ("charge",)
UNDONE_WHEN_CANCELLED = ("ship", "reserve", "charge")

LEASE = {"LEASE_SECONDS": 1, "POLL_SECONDS": 0.1}


class Fleet:
    """Two workers, and another one in the place of each that was killed."""

    def __init__(self, start: Callable[[], WorkerProcess]) -> None:
        self._start = start
        self._workers = [start(), start()]

    def works_until(self, condition: Callable[[], bool], *, what: str) -> None:
        def holds() -> bool:
            self._workers = [self._start() if each.has_ended else each for each in self._workers]
            return condition()

        wait_for(holds, timeout=300, what=what)


def count(status: str) -> int:
    return Job.objects.filter(task=fulfil_order.name, status=status).count()


def test_an_order_ends_the_same_wherever_its_worker_is_killed(start_worker: StartWorker, tmp_path: Path) -> None:
    placed = {moment: orders.place_order() for moment in MOMENTS}
    jobs = {moment: fulfil_order.enqueue(order.pk) for moment, order in placed.items()}
    environment = killing.environment(tmp_path, {job.pk: moment for moment, job in jobs.items()})
    fleet = Fleet(lambda: start_worker("--threads", "1", ready=False, settings=LEASE, environment=environment))
    fleet.works_until(lambda: count("WAITING") == len(MOMENTS), what="every order to wait for its parcel")
    for order in placed.values():
        orders.ship(order)
    fleet.works_until(lambda: count("SUCCEEDED") == len(MOMENTS), what="every order to arrive")
    for moment, order in placed.items():
        assert killing.was_killed(tmp_path, jobs[moment].pk), f"nobody was killed {moment}"
        assert (moment, *orders.money_of(order)) == (moment, 1, 0)
        assert (moment, orders.trackings_of(order)) == (moment, [f"1Z{order.pk}"])
        assert Job.objects.get(pk=jobs[moment].pk).result == f"1Z{order.pk}"
    assert orders.stock() == orders.STOCK - 3 * len(MOMENTS)
    assert Payment.objects.get(order_id=placed["after charge"].pk).requests == 2
    assert Attempt.objects.filter(outcome="lost").count() >= len(MOMENTS) - 2  # two died when the job had ended to run


def undo_moments(steps: tuple[str, ...]) -> list[str]:
    """Before an undo is called, when it was and nobody has written so, and when that is written."""
    return [
        moment
        for step in steps
        for moment in (f"before undo {step}", f"before undo {step} recorded", f"after undo {step} recorded")
    ]


def test_an_order_that_fails_is_refunded_once_wherever_its_worker_is_killed(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    moments = [*FAILING, *undo_moments(UNDONE_WHEN_FAILED)]
    placed = {moment: orders.place_order(quantity=orders.STOCK + 1) for moment in moments}
    jobs = {moment: fulfil_order.enqueue(order.pk) for moment, order in placed.items()}
    environment = killing.environment(tmp_path, {job.pk: moment for moment, job in jobs.items()})
    fleet = Fleet(lambda: start_worker("--threads", "1", ready=False, settings=LEASE, environment=environment))
    fleet.works_until(lambda: count("DEAD") == len(moments), what="every order to fail")
    check_undone(placed, jobs, tmp_path)


def test_an_order_that_is_cancelled_is_undone_once_wherever_its_worker_is_killed(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    moments = undo_moments(UNDONE_WHEN_CANCELLED)
    placed = {moment: orders.place_order() for moment in moments}
    jobs = {moment: fulfil_order.enqueue(order.pk) for moment, order in placed.items()}
    environment = killing.environment(tmp_path, {job.pk: moment for moment, job in jobs.items()})
    fleet = Fleet(lambda: start_worker("--threads", "1", ready=False, settings=LEASE, environment=environment))
    fleet.works_until(lambda: count("WAITING") == len(moments), what="every order to wait for its parcel")
    lifecycle.cancel("default", [job.pk for job in jobs.values()], reason="changed my mind")
    fleet.works_until(lambda: count("CANCELLED") == len(moments), what="every order to be cancelled")
    check_undone(placed, jobs, tmp_path)


def check_undone(placed: dict[str, Order], jobs: dict[str, Job], folder: Path) -> None:
    for moment, order in placed.items():
        assert killing.was_killed(folder, jobs[moment].pk), f"nobody was killed {moment}"
        assert (moment, *orders.money_of(order)) == (moment, 1, 1)
        assert (moment, orders.trackings_of(order)) == (moment, [])
        assert (moment, Job.objects.get(pk=jobs[moment].pk).compensation) == (moment, "done")
    assert orders.stock() == orders.STOCK
