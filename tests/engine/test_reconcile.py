"""Rows follow the declarations; what an operator changed or made stays."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

from django_reliable_jobs import Cron, Every, scheduled, task
from django_reliable_jobs.engine import reconcile, schedules
from django_reliable_jobs.exceptions import InvalidTask
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.recurrence import Recurrence
from django_reliable_jobs.testing import at, tick
from tests import tasks
from tests.scheduled_tasks import only_declared
from tests.schedules import MONDAY, a_schedule, on, ranges_of

pytestmark = pytest.mark.django_db

NIGHTLY = Cron("0 2 * * *")


@pytest.fixture(autouse=True)
def no_declared_schedules(db: None) -> None:
    Schedule.objects.all().delete()


def sync(*declarations: tuple[str, Recurrence, dict[str, object]], dry_run: bool = False) -> dict[str, str]:
    """Follow these declarations on Monday at midnight; return what became of each name."""
    with only_declared(*declarations), at(MONDAY):
        return {change.name: change.action for change in reconcile.sync("default", dry_run=dry_run)}


class TestSync:
    def test_a_new_declaration_makes_a_row(self) -> None:
        assert sync(("nightly", NIGHTLY, {"priority": 5, "alert_after": timedelta(hours=26)})) == {"nightly": "created"}
        schedule = Schedule.objects.get()
        assert (schedule.managed_by, schedule.task, schedule.kwargs) == (
            "code",
            "tests.tasks.effect",
            {"name": "nightly"},
        )
        assert (schedule.priority, schedule.alert_after) == (5, timedelta(hours=26))
        assert (schedule.rule(), schedule.next_run_at) == (Cron("0 2 * * *", on_gap="after", on_fold="first"), on(2, 2))

    def test_a_second_time_nothing_changes(self) -> None:
        sync(("nightly", NIGHTLY, {"start_deadline": timedelta(hours=1), "starts_at": on(1)}))
        before = Schedule.objects.values().get()
        assert sync(("nightly", NIGHTLY, {"start_deadline": timedelta(hours=1), "starts_at": on(1)})) == {
            "nightly": "unchanged"
        }
        assert Schedule.objects.values().get() == before

    def test_a_row_follows_the_code(self) -> None:
        sync(("nightly", NIGHTLY, {}))
        assert sync(("nightly", Every(hours=1), {"overlap": "queue"})) == {"nightly": "changed"}
        schedule = Schedule.objects.get()
        assert (schedule.rule(), schedule.overlap, schedule.next_run_at) == (Every(hours=1), "queue", on(2, 1))

    def test_what_an_operator_changed_stays_and_is_told(self) -> None:
        sync(("nightly", NIGHTLY, {}))
        schedule = Schedule.objects.get()
        schedules.edit("default", schedule.pk, priority=9)
        with only_declared(("nightly", Every(hours=1), {"priority": 1})), at(MONDAY):
            [change] = reconcile.sync("default")
        assert (change.action, change.details, change.overridden) == ("changed", ("recurrence",), ("priority",))
        schedule.refresh_from_db()
        assert (schedule.priority, schedule.rule()) == (9, Every(hours=1))
        assert reconcile.overridden_fields(schedule) == ("priority",)

    def test_it_is_reset_to_the_code(self) -> None:
        sync(("nightly", NIGHTLY, {"priority": 1}))
        schedule = Schedule.objects.get()
        schedules.edit("default", schedule.pk, priority=9, recurrence=Every(hours=3), starts_at=on(9))
        schedules.reset_to_code("default", schedule.pk)
        schedule.refresh_from_db()
        assert (schedule.priority, schedule.recurrence, schedule.starts_at) == (1, NIGHTLY.as_dict(), None)
        assert reconcile.overridden_fields(schedule) == ()

    def test_a_declaration_that_is_gone_pauses_its_row_and_one_that_is_back_resumes_it(self) -> None:
        sync(("nightly", NIGHTLY, {}))
        assert sync() == {"nightly": "paused"}
        schedule = Schedule.objects.get()
        assert (schedule.next_run_at, schedule.pause_reason) == (None, reconcile.UNDECLARED)
        assert sync() == {}
        with only_declared(("nightly", NIGHTLY, {})), at(on(4)):
            [change] = reconcile.sync("default")
        assert change.action == "resumed"
        schedule.refresh_from_db()
        assert (schedule.paused_at, schedule.next_run_at) == (None, on(4, 2))
        assert ranges_of(schedule) == [(on(2, 2), on(3, 2), 2, "paused")]

    def test_what_is_missing_is_added_without_a_word_on_what_is_there(self) -> None:
        sync(("changed", NIGHTLY, {}), ("gone", NIGHTLY, {}), ("back", NIGHTLY, {}))
        sync(("changed", NIGHTLY, {}), ("gone", NIGHTLY, {}))
        before = {row["name"]: row for row in Schedule.objects.values()}
        with only_declared(("changed", Every(hours=1), {}), ("back", NIGHTLY, {}), ("new", NIGHTLY, {})), at(MONDAY):
            assert [(change.name, change.action) for change in reconcile.add_missing("default")] == [("new", "created")]
            assert reconcile.add_missing("default") == []
        after = {row["name"]: row for row in Schedule.objects.values()}
        assert after.pop("new")["managed_by"] == "code"
        assert after == before
        assert before["back"]["pause_reason"] == reconcile.UNDECLARED

    def test_a_pause_of_an_operator_outlives_the_declaration(self) -> None:
        sync(("nightly", NIGHTLY, {}))
        schedules.pause("default", [Schedule.objects.get().pk], reason="holidays")
        assert sync() == {}
        assert sync(("nightly", NIGHTLY, {})) == {"nightly": "unchanged"}
        assert Schedule.objects.get().pause_reason == "holidays"

    def test_what_an_operator_made_is_left_alone(self) -> None:
        mine = a_schedule(name="nightly", kwargs={"x": 1})
        other = a_schedule(name="other")
        assert sync(("nightly", NIGHTLY, {})) == {"nightly": "taken"}
        for schedule in (mine, other):
            before = dict(Schedule.objects.filter(pk=schedule.pk).values().get())
            assert before["paused_at"] is None and before["managed_by"] == "admin"
        assert Schedule.objects.get(pk=mine.pk).kwargs == {"x": 1}

    def test_a_dry_run_writes_nothing(self) -> None:
        sync(("old", NIGHTLY, {}))
        before = list(Schedule.objects.values())
        assert sync(("new", NIGHTLY, {}), dry_run=True) == {"new": "created", "old": "paused"}
        assert list(Schedule.objects.values()) == before

    def test_one_that_can_not_hold_with_the_changes_of_an_operator_stops_no_other(self) -> None:
        sync(("a", NIGHTLY, {}), ("b", NIGHTLY, {}))
        schedules.edit("default", Schedule.objects.get(name="a").pk, jitter=timedelta(hours=1))
        changes = sync(
            ("a", NIGHTLY, {"start_deadline": timedelta(minutes=1)}),
            ("b", NIGHTLY, {"start_deadline": timedelta(minutes=1)}),
        )
        assert changes == {"a": "invalid", "b": "changed"}

    def test_its_jobs_run_like_others(self) -> None:
        sync(("nightly", NIGHTLY, {}))
        [job] = tick(at=on(2, 2))
        assert job.kwargs == {"name": "nightly"}


class TestDeclaration:
    def test_below_task_it_says_where_it_stands(self) -> None:
        with pytest.raises(InvalidTask, match="@scheduled stands above @task, not below it"):

            @task()
            @scheduled(NIGHTLY)  # type: ignore[type-var]
            def below() -> None: ...

    def test_what_can_not_hold_is_said_at_import(self) -> None:
        with only_declared():
            with pytest.raises(InvalidTask, match="overlap must be one of"):
                scheduled(NIGHTLY, kwargs={"name": "x"}, overlap="maybe")(tasks.effect)
            with pytest.raises(InvalidTask, match="missing a required argument: 'name'"):
                scheduled(NIGHTLY)(tasks.effect)
            with pytest.raises(
                InvalidTask, match=r"@scheduled\(\) has no argument 'overlp': did you mean 'overlap'\? it takes"
            ):
                scheduled(NIGHTLY, overlp="skip")(tasks.effect)  # type: ignore[call-arg]
            with pytest.raises(InvalidTask, match=r"@scheduled\(\) takes only recurrence without a name: it takes"):
                scheduled(NIGHTLY, "nightly")(tasks.effect)  # type: ignore[misc]
            with pytest.raises(InvalidTask, match=r"effect: @scheduled needs to be told when: @scheduled\(Every"):
                scheduled(tasks.effect)  # type: ignore[arg-type]
            with pytest.raises(InvalidTask, match=r"must be Cron\(…\), Every\(…\) or Once\(…\), not '0 2"):
                scheduled("0 2 * * *")(tasks.effect)  # type: ignore[arg-type]

    def test_two_of_one_name_are_refused_and_two_of_two_names_are_not(self) -> None:
        with only_declared():
            scheduled(NIGHTLY, kwargs={"name": "x"})(tasks.effect)
            scheduled(NIGHTLY, kwargs={"name": "x"}, name="second")(tasks.effect)
            with pytest.raises(InvalidTask, match="give each a name"):
                scheduled(Every(hours=1), kwargs={"name": "x"})(tasks.effect)
            with pytest.raises(InvalidTask, match="two schedules claim the name 'second'"):
                scheduled(NIGHTLY, name="second")(tasks.nothing)

    def test_it_returns_the_task(self) -> None:
        with only_declared():
            assert scheduled(NIGHTLY)(tasks.nothing) is tasks.nothing


def test_the_log_tells_what_became_of_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "django_reliable_jobs")
    sync(("nightly", NIGHTLY, {}), ("second", NIGHTLY, {}))
    a_schedule(name="mine")
    sync(("nightly", NIGHTLY, {"overlap": "queue"}), ("mine", NIGHTLY, {}))
    assert caplog.messages == [
        "schedule nightly: created",
        "schedule second: created",
        "schedule mine: left alone (an operator made a schedule of this name; the code's is left out)",
        "schedule nightly: changed (overlap)",
        "schedule second: paused (its declaration is gone from the code)",
    ]


class TestMigrate:
    def test_migrate_follows_the_code(self) -> None:
        with only_declared(("nightly", NIGHTLY, {})):
            call_command("migrate", "django_reliable_jobs", verbosity=0)
        assert Schedule.objects.get().name == "nightly"

    def test_tables_that_are_not_there_yet_are_no_fault(self, caplog: pytest.LogCaptureFixture) -> None:
        follow = apps.get_app_config("django_reliable_jobs").module.apps.follow_declared_schedules
        with connection.cursor() as cursor, only_declared(("nightly", NIGHTLY, {})):
            cursor.execute("ALTER TABLE django_reliable_jobs_schedule DROP COLUMN planned")
            follow(using="default")
            assert "were not looked at" in caplog.text
            cursor.execute("ALTER TABLE django_reliable_jobs_schedule RENAME TO something_else")
            follow(using="default")
