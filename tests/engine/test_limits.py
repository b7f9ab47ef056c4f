"""The rows of limits: what the code says, what an operator says instead, how a rate is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError
from django.db.models.functions import Now
from django.utils import timezone

from django_reliable_jobs import Concurrency, Rate, registry, task
from django_reliable_jobs.engine import limits
from django_reliable_jobs.models import Job, Limit, Pace
from django_reliable_jobs.testing import at
from tests import limited_tasks
from tests.limited_claims import find, find_and_take
from tests.states import a_worker

pytestmark = pytest.mark.django_db

ONE = "tests.limited_tasks.one_at_a_time"
MAIL = "tests.limited_tasks.one_a_second"


@pytest.fixture(autouse=True)
def declared() -> None:
    limits.declare("default")


@pytest.fixture
def moment() -> Iterator[datetime]:
    """A moment that stands still."""
    moment = timezone.now() + timedelta(days=1)
    with at(moment):
        yield moment


def row(name: str, kind: str = "concurrency") -> Limit:
    return Limit.objects.get(kind=kind, name=name)


def status(name: str, kind: str = "concurrency") -> limits.LimitStatus:
    return next(each for each in limits.statuses("default") if (each.kind, each.name) == (kind, name))


def starts(limit: int = 100) -> int:
    return len(find_and_take(a_worker(), limit))


def sent() -> None:
    pass


def test_every_declared_limit_has_one_row_however_often_it_is_declared() -> None:
    before = set(Limit.objects.values_list("pk", flat=True))
    limits.declare("default")
    assert set(Limit.objects.values_list("pk", flat=True)) == before
    assert row(ONE).value == "1"
    assert row(MAIL, "rate").value == "60/m, burst 2"
    assert str(row("crm")) == "crm: 2"
    assert Limit.objects.filter(name="crm").count() == 1  # two tasks share it


def test_the_code_that_starts_last_has_the_last_word_and_the_override_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", {})
    task(name="sent", concurrency=3, rate_limit="10/s")(sent)
    limits.declare("default")
    limits.override("default", "concurrency", "sent", 7)
    task(name="sent", concurrency=4, rate_limit=Rate("10/s", burst=20))(sent)
    limits.declare("default", missing_only=True)
    assert row("sent").value == "3"
    limits.declare("default")
    assert (row("sent").value, row("sent").override) == ("4", "7")
    assert row("sent", "rate").value == "10/s, burst 20"


def test_a_row_that_somebody_deleted_comes_back() -> None:
    Limit.objects.all().delete()
    limits.declare("default", missing_only=True)
    assert row(ONE).value == "1"


def test_without_declared_limits_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    Limit.objects.all().delete()
    monkeypatch.setattr(registry, "_tasks", {})
    limits.declare("default")
    assert not Limit.objects.exists()


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "rate", "allowed": 1},
        {"kind": "rate", "allowed": 1, "period": 7, "burst": 1},
        {"kind": "concurrency", "allowed": 1, "period": 1, "burst": 1},
        {"kind": "concurrency", "allowed": 1, "override_period": 1},
        {"kind": "rate", "allowed": 1, "period": 1, "burst": 1, "override_allowed": 1},
    ],
)
def test_the_table_refuses_a_limit_that_is_not_whole(values: dict[str, object]) -> None:
    with pytest.raises(IntegrityError):
        Limit.objects.create(name="broken", **values)


def test_an_override_is_in_force_at_once_and_can_be_reset() -> None:
    limited_tasks.one_at_a_time.enqueue_many([{}] * 10)
    assert starts() == 1
    assert limits.override("default", "concurrency", ONE, 3)
    assert status(ONE) == limits.LimitStatus("concurrency", ONE, "1", "3", True, 1, 9, None)
    assert starts() == 2
    assert limits.reset("default", "concurrency", ONE)
    assert (status(ONE).override, starts()) == (None, 0)  # three run on


def test_an_override_of_zero_lets_nothing_start() -> None:
    limited_tasks.one_at_a_time.enqueue()
    limited_tasks.one_a_second.enqueue()
    limits.override("default", "concurrency", ONE, 0)
    limits.override("default", "rate", MAIL, 0, 1)
    assert starts() == 0
    assert find().is_hopeless
    limits.reset("default", "rate", MAIL)
    assert starts() == 1


def test_an_unknown_limit_can_not_be_overridden() -> None:
    assert not limits.override("default", "concurrency", "crn", 3)
    assert not limits.override("default", "rate", "crm", 3, 1)
    assert not limits.reset("default", "concurrency", "crn")


def test_a_name_that_nobody_has_declared_is_the_strictest_limit_that_there_is(moment: datetime) -> None:
    Limit.objects.all().delete()
    limited_tasks.three_at_a_time.enqueue_many([{}] * 5)
    limited_tasks.ten_a_second.enqueue_many([{}] * 5)
    assert starts() == 2
    with at(moment + timedelta(minutes=59)):
        assert starts() == 0
    with at(moment + timedelta(minutes=61)):
        assert starts() == 1


def test_the_list_names_limits_that_nobody_has_declared_while_jobs_wait_for_them(moment: datetime) -> None:
    Limit.objects.all().delete()
    assert limits.statuses("default") == []
    limited_tasks.one_a_second.enqueue_many([{}] * 2)
    limited_tasks.one_at_a_time.enqueue_many([{}] * 2)
    assert starts() == 2
    assert limits.statuses("default") == [
        limits.LimitStatus("rate", MAIL, "1/h", None, False, None, 1, pytest.approx(3600)),  # type: ignore[arg-type]
        limits.LimitStatus("concurrency", ONE, "1", None, False, 1, 1, None),
    ]


def test_the_list_counts_what_runs_and_waits_over_all_keys_of_a_limit() -> None:
    limited_tasks.per_customer.enqueue_many([{"customer_id": number} for number in (1, 1, 1, 2)])
    limited_tasks.call_api.enqueue_many([{"customer_id": 1}] * 2)
    assert starts() == 3
    assert (status("tests.limited_tasks.per_customer").running, status("tests.limited_tasks.per_customer").waiting) == (
        2,
        2,
    )
    assert (status("api", "rate").running, status("api", "rate").waiting) == (None, 1)
    assert status("crm").running == status("crm").waiting == 0


def test_the_list_says_when_a_rate_lets_the_first_of_all_its_waiting_keys_start(moment: datetime) -> None:
    def seconds(later: float) -> float | None:
        with at(moment + timedelta(seconds=later)):
            found = status("api", "rate").seconds_to_start
        return None if found is None else round(found, 1)

    assert seconds(0) is None  # nothing waits
    limited_tasks.call_api.enqueue(1)
    assert seconds(0) == 0
    Pace.objects.create(key=Job.objects.get().rate_key, paid_until=moment + timedelta(seconds=10))
    assert (seconds(0), seconds(2), seconds(3)) == (2.8, 0.8, 0)  # a burst of 3, one each 3.6 s
    Job.objects.create(task="tests.limited_tasks.call_api", rate_key="api:customer_id=2")
    assert seconds(0) == 0
    assert limits.override("default", "rate", "api", 0, 60)
    assert seconds(0) is None


def test_a_burst_may_start_at_once_and_then_one_after_each_spacing(moment: datetime) -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 20)
    seen = []
    for seconds in (0, 0, 0.9, 1.0, 1.5, 2.0, 10, 10):
        with at(moment + timedelta(seconds=seconds)):
            seen.append(starts())
    assert seen == [2, 0, 0, 1, 0, 1, 2, 0]


def test_in_no_window_more_start_than_the_rate_and_the_burst_allow(moment: datetime) -> None:
    limited_tasks.ten_a_second.enqueue_many([{}] * 400)
    dice = [0.0, 0.013, 0.05, 0.4, 0.07, 0.21, 0.9, 1.3, 0.03, 0.1] * 8
    moments: list[float] = []
    now = 0.0
    for step in dice:
        now += step
        with at(moment + timedelta(seconds=now)):
            moments += [now] * starts(limit=7)
    for start in moments:
        for window in (0.1, 0.5, 1, 2, 5):
            assert sum(start <= each < start + window for each in moments) <= 10 * window + 10 + 1e-9
    assert len(moments) >= 0.8 * 10 * now


def test_the_finding_tells_when_a_rate_lets_the_next_one_start(moment: datetime) -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 5)
    starts()
    with at(moment + timedelta(seconds=0.25)):
        assert find().soonest == pytest.approx(0.75, abs=1e-5)
    with at(moment + timedelta(seconds=1)):
        assert find().soonest is None


def test_a_faster_override_is_not_held_back_by_what_was_paid_before(moment: datetime) -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 20)
    limits.override("default", "rate", MAIL, 1, 3600)
    assert starts() == 1
    limits.override("default", "rate", MAIL, 10, 1)
    assert starts() == 1
    with at(moment + timedelta(seconds=1)):
        assert starts() == 10


def test_a_clock_that_was_set_back_stops_no_rate(moment: datetime) -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 5)
    assert starts() == 2
    back = moment - timedelta(hours=12)
    with at(back):
        assert starts() == 1
        assert find().soonest == pytest.approx(1, abs=1e-5)
    with at(back + timedelta(seconds=1)):
        assert starts() == 1


def test_paces_that_say_nothing_are_pruned_and_the_rate_holds(moment: datetime) -> None:
    limited_tasks.one_a_second.enqueue_many([{}] * 6)
    starts()
    assert limits.prune_paces("default") == 0
    with at(moment + timedelta(minutes=11)):
        assert limits.prune_paces("default") == 1
        assert not Pace.objects.exists()
        assert starts() == 2
        assert Pace.objects.count() == 1


def test_ten_thousand_keys_of_a_limit_have_one_row() -> None:
    limited_tasks.call_api.enqueue_many([{"customer_id": number} for number in range(10_000)])
    before = Limit.objects.count()
    assert starts(limit=50) == 3  # the burst
    assert Limit.objects.count() == before
    assert Pace.objects.count() == 1
    assert Job.objects.filter(concurrency_key__isnull=False).values("concurrency_key").distinct().count() == 10_000


def test_limits_with_one_name_and_two_kinds_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", {})
    declared = task(name="sent", concurrency=Concurrency(2, name="both"), rate_limit=Rate("1/h", name="both", burst=5))(
        sent
    )
    limits.declare("default")
    declared.enqueue_many([{}] * 9)
    assert starts() == 2
    Job.objects.filter(status="RUNNING").update(status="SUCCEEDED", finished_at=Now())
    assert starts() == 2
    Job.objects.filter(status="RUNNING").update(status="SUCCEEDED", finished_at=Now())
    assert starts() == 1
