"""How the tests' own `flush` leaves a database: as Django's does."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.core.management.commands import flush as djangos
from django.db import connection

from django_reliable_jobs.models import Job, Schedule
from tests.models import Effect
from tests.tasks import effect

pytestmark = pytest.mark.django_db(transaction=True)

AS_A_TEST_ENDS = {"verbosity": 0, "interactive": False, "reset_sequences": False, "allow_cascade": False}


@pytest.fixture(autouse=True)
def _known() -> None:
    """The first one of a process looks at what there is."""
    call_command("flush", **AS_A_TEST_ENDS)


def content() -> dict[str, Any]:
    """What is in the database, but for ids and moments."""
    counts = {model._meta.label: model._base_manager.count() for model in apps.get_models(include_auto_created=True)}
    return {
        **{name: count for name, count in counts.items() if count},
        "types": sorted(ContentType.objects.values_list("app_label", "model")),
        "permissions": sorted(Permission.objects.values_list("content_type__model", "codename", "name")),
        "schedules": sorted(Schedule.objects.values_list("name", "paused_at")),
    }


def expected() -> dict[str, Any]:
    call_command(djangos.Command(), **AS_A_TEST_ENDS)
    left = content()
    call_command("flush", **AS_A_TEST_ENDS)  # takes note of the new content types
    return left


def leave_much() -> None:
    effect.enqueue("here")
    Effect.objects.create(name="here")
    Schedule.objects.all().delete()
    user = User.objects.create_user("somebody")
    user.user_permissions.add(Permission.objects.earliest("pk"))
    user.groups.add(Group.objects.create(name="somewhere"))


def test_nothing_is_left_that_djangos_own_would_not_leave() -> None:
    as_it_was = expected()
    leave_much()
    assert content() != as_it_was
    call_command("flush", **AS_A_TEST_ENDS)
    assert content() == as_it_was


def test_content_types_and_permissions_stay_where_they_are() -> None:
    before = Permission.objects.earliest("pk").pk
    leave_much()
    call_command("flush", **AS_A_TEST_ENDS)
    assert Permission.objects.earliest("pk").pk == before, "they were not made anew"


@pytest.mark.parametrize("model", [ContentType, Permission])
def test_content_types_and_permissions_that_were_touched_are_made_anew(model: Any) -> None:
    as_it_was = expected()
    model.objects.latest("pk").delete()
    Permission.objects.update(name="something else")
    call_command("flush", **AS_A_TEST_ENDS)
    assert content() == as_it_was


def test_the_planner_knows_as_little_of_a_table_that_was_vacuumed_as_of_a_new_one() -> None:
    effect.enqueue("here")
    Job.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM {Job._meta.db_table}")
        call_command("flush", **AS_A_TEST_ENDS)
        cursor.execute("SELECT reltuples FROM pg_class WHERE relname = %s", [Job._meta.db_table])
        assert cursor.fetchone() == (-1,)
