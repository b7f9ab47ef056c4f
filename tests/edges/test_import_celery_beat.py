"""`manage.py import_celery_beat`: periodic tasks become schedules, or are named with the reason why not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_reliable_jobs.models import Schedule
from django_reliable_jobs.testing import at, tick
from tests.celery_beat_tables import DEFAULTS, EVERY_MINUTE, add, create, insert

pytestmark = pytest.mark.django_db
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOURLY = {"every": 1, "period": "hours"}


@pytest.fixture
def tables(db: None) -> None:
    create()


def run(*arguments: str) -> str:
    output = StringIO()
    with at(NOON):
        call_command("import_celery_beat", *arguments, stdout=output, no_color=True)
    return output.getvalue()


def imported(name: str) -> Schedule:
    assert f"Imported: {name}:" in run()
    return Schedule.objects.get(name=name)


def reason(name: str) -> str:
    [line] = [line for line in run().splitlines() if line.startswith(f"Not imported: {name}:")]
    assert not Schedule.objects.filter(name=name).exists()
    return line


@pytest.mark.usefixtures("tables")
class TestCrontab:
    def test_it_keeps_its_zone_and_its_arguments(self) -> None:
        add("nightly", crontab={"minute": "30", "hour": "2", "timezone": "Europe/Berlin"}, queue="slow", args='["a"]',
            kwargs='{"value": 3}')  # fmt: skip
        schedule = imported("nightly")
        assert (schedule.task, schedule.kwargs) == ("tests.tasks.unique", {"key": "a", "value": 3})
        assert (schedule.queue_name, schedule.managed_by) == ("slow", "admin")
        assert (schedule.overlap, schedule.catch_up) == ("allow", "latest")
        assert schedule.next_run_at == datetime(2030, 1, 2, 1, 30, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("fields", "expression"),
        [
            ({"minute": "*/15"}, "*/15 * * * *"),
            ({"hour": "8, 20", "day_of_week": "monday-fri"}, "* 8,20 * * mon-fri"),
            ({"day_of_month": "1-31", "day_of_week": "1"}, "* * * * 1"),
            ({"day_of_month": "13", "day_of_week": "0-6"}, "* * 13 * *"),
            ({"day_of_month": "8-14", "day_of_week": "tue"}, "* * * * tue#2"),
            ({"month_of_year": "january"}, "* * * jan *"),
        ],
    )
    def test_what_celery_writes_is_read(self, fields: dict[str, str], expression: str) -> None:
        add("x", crontab=fields)
        assert imported("x").recurrence["expression"] == expression

    def test_both_day_fields_are_refused_as_they_mean_another_thing(self) -> None:
        add("friday 13", crontab={"day_of_month": "13", "day_of_week": "5"})
        assert "the day of the month is 13 and the weekday is 5; cron runs when either is so" in reason("friday 13")

    def test_one_that_never_comes_is_refused(self) -> None:
        add("never", crontab={"day_of_month": "30", "month_of_year": "2"})
        assert "never" in reason("never")

    def test_a_project_without_zones_has_one_for_all(self, settings: Any) -> None:
        settings.DJANGO_CELERY_BEAT_TZ_AWARE, settings.CELERY_TIMEZONE = False, "Asia/Tokyo"
        add("nightly", crontab={"hour": "2", "timezone": "Europe/Berlin"})
        assert imported("nightly").recurrence["timezone"] == "Asia/Tokyo"


@pytest.mark.usefixtures("tables")
class TestInterval:
    def test_it_keeps_its_phase(self) -> None:
        add("hourly", interval=HOURLY, last_run_at=datetime(2029, 5, 1, 3, 7, 12, 345, tzinfo=UTC))
        assert imported("hourly").next_run_at == datetime(2030, 1, 1, 12, 7, 12, tzinfo=UTC)

    def test_it_begins_when_it_was_to_begin(self) -> None:
        add("later", interval={"every": 2, "period": "days"}, start_time=NOON + timedelta(days=5))
        assert imported("later").next_run_at == NOON + timedelta(days=5)

    def test_microseconds_are_refused(self) -> None:
        add("busy", interval={"every": 5, "period": "microseconds"})
        assert "the shortest is a second" in reason("busy")


@pytest.mark.usefixtures("tables")
class TestOnce:
    def test_a_clocked_moment(self) -> None:
        add("then", clocked={"clocked_time": NOON + timedelta(days=2)}, one_off=True)
        assert imported("then").recurrence["kind"] == "once"
        with at(NOON + timedelta(days=3)):
            assert [job.kwargs for job in tick()] == [{"key": "a"}]

    def test_a_moment_that_has_passed_is_refused(self) -> None:
        add("then", clocked={"clocked_time": NOON - timedelta(days=2)}, one_off=True)
        assert "has passed" in reason("then")

    def test_one_off_runs_at_its_next_moment_and_no_more(self) -> None:
        add("once", crontab={"minute": "0", "hour": "18"}, one_off=True)
        assert imported("once").next_run_at == datetime(2030, 1, 1, 18, tzinfo=UTC)
        assert Schedule.objects.get(managed_by="admin").rule().next_after(datetime(2030, 1, 1, 18, tzinfo=UTC)) is None

    def test_one_off_of_an_interval_runs_when_it_was_to_begin(self) -> None:
        add("once", interval=HOURLY, one_off=True, start_time=NOON + timedelta(days=2))
        assert imported("once").next_run_at == NOON + timedelta(days=2)

    @pytest.mark.parametrize("is_enabled", [False, True])
    def test_one_off_that_has_run_is_refused(self, is_enabled: bool) -> None:
        add("once", interval=HOURLY, one_off=True, enabled=is_enabled, total_run_count=1)
        assert "has run" in reason("once")


@pytest.mark.usefixtures("tables")
class TestTheRest:
    def test_one_that_was_disabled_is_paused(self) -> None:
        add("off", interval=HOURLY, enabled=False)
        schedule = imported("off")
        assert (schedule.next_run_at, schedule.pause_reason) == (None, "was disabled in django-celery-beat")
        assert schedule.paused_at is not None

    def test_both_kinds_of_expiry(self) -> None:
        add("x", interval=HOURLY, expires=NOON + timedelta(days=1), expire_seconds=90)
        schedule = imported("x")
        assert (schedule.ends_at, schedule.start_deadline) == (NOON + timedelta(days=1), timedelta(seconds=90))
        add("over", interval=HOURLY, expires=NOON)
        assert "expired at 2030-01-01T12:00:00+00:00" in reason("over")

    def test_what_only_a_broker_knows_is_told(self) -> None:
        add("x", interval=HOURLY, priority=5, routing_key="a.b", headers='{"a": 1}')
        lines = run()
        for each in ("its priority is left out", "its routing_key is left out", "its headers are left out"):
            assert each in lines

    def test_the_sun_is_refused_by_name(self) -> None:
        add("dawn", solar={"event": "sunrise", "latitude": 52.5, "longitude": 13.4})
        assert "it follows the sun (sunrise at 52.500000, 13.400000)" in reason("dawn")

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"task": "shop.tasks.old"}, "@task(aliases=['shop.tasks.old'])"),
            ({"task": "celery.backend_cleanup"}, "a task of Celery itself"),
            ({"kwargs": "{}"}, "missing a required argument: 'key'"),
            ({"kwargs": "no json"}, "do not fit"),
            ({"task": "tests.tasks.nothing", "args": "[1]", "kwargs": "{}"}, "go into *args"),
            ({"queue": "q" * 100}, "queue_name must be"),
        ],
    )
    def test_what_does_not_fit_is_named_with_the_way_out(self, columns: dict[str, Any], said: str) -> None:
        add("x", **{"interval": HOURLY, **columns})
        assert said in reason("x")

    def test_a_second_import_changes_nothing(self) -> None:
        add("x", interval=HOURLY)
        assert "Made 1 schedules; 0 periodic tasks are left." in run()
        assert "there is a schedule of that name already" in run()
        assert Schedule.objects.filter(managed_by="admin").count() == 1

    def test_a_dry_run_writes_nothing_and_tells_all(self) -> None:
        add("x", interval=HOURLY)
        add("dawn", solar={"event": "sunrise", "latitude": 52.5, "longitude": 13.4})
        lines = run("--dry-run", "--overlap", "skip")
        assert "Imported: x: tests.tasks.unique. Every hour of elapsed time" in lines and "Not imported: dawn" in lines
        assert "It would have made 1 schedules; 1 periodic tasks are left." in lines
        assert "the next starts beside it" in lines, "what changes in meaning"
        assert not Schedule.objects.filter(managed_by="admin").exists()

    def test_overlap_may_be_chosen(self) -> None:
        add("x", interval=HOURLY)
        run("--overlap", "skip")
        assert Schedule.objects.get(managed_by="admin").overlap == "skip"

    def test_columns_that_an_old_version_lacks_are_not_missed(self) -> None:
        with connection.cursor() as cursor:
            for column in ("expire_seconds", "priority", "headers", "start_time", "clocked_id"):
                cursor.execute(f"ALTER TABLE django_celery_beat_periodictask DROP COLUMN {column}")
            cursor.execute("DROP TABLE django_celery_beat_clockedschedule")
            cursor.execute("ALTER TABLE django_celery_beat_crontabschedule DROP COLUMN timezone")
        cron = insert("crontabschedule", **{**EVERY_MINUTE, "hour": "2"})
        given = {name: value for name, value in DEFAULTS.items() if name != "headers"}
        insert("periodictask", **given, name="x", date_changed=NOON, crontab_id=cron)
        assert imported("x").recurrence["timezone"] == "UTC"


def test_a_database_without_its_tables_is_named() -> None:
    with pytest.raises(CommandError, match="The database 'default' has no table django_celery_beat_periodictask"):
        run()
    with pytest.raises(CommandError, match="'nowhere' has no table"):
        run("--source", "nowhere")
