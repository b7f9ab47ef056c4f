"""What addresses and forms may ask of the admin, whoever writes them: odd values, columns that are not shown."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_reliable_jobs.models import Alert, Job, Limit, Schedule
from tests.schedules import a_schedule

pytestmark = pytest.mark.django_db

INDEX = "/admin/django_reliable_jobs/"
ODD = [
    "\0",
    "a\0b",
    "9" * 400,
    "9223372036854775808",
    "-9223372036854775809",
    "²",
    "\u0661",
    "%",
    "'",
    "a=" + "[" * 5000,
]
LISTS = ["alert", "job", "limit", "queue", "schedule", "worker"]
FILTERS = {
    "alert": ["state", "severity__exact", "kind__exact", "kind"],
    "job": ["status", "period", "queue", "schedule", "worker", "task", "error", "before"],
    "limit": ["kind__exact"],
    "schedule": ["clock_change", "managed_by__exact", "overlap__exact"],
    "queue": ["name"],
    "worker": ["host"],
}


@pytest.fixture
def viewer(client: Client) -> Client:
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    return client


@pytest.mark.parametrize(
    "address",
    [
        "job/?kwargs__password__startswith=h",
        "job/?kwargs__password=hunter2",
        "job/?result__contains=1",
        "job/?args__0=1",
        "job/?task__startswith=shop",
        "job/?token__gte=0",
        "schedule/?kwargs__password__startswith=h",
        "schedule/?ping_url__startswith=h",
        "alert/?message__contains=x",
        "limit/?name__startswith=x",
        "worker/?host__startswith=x",
    ],
)
def test_no_address_asks_for_a_column_that_is_no_filter(viewer: Client, address: str) -> None:
    Job.objects.create(task="shop.import", kwargs={"password": "hunter2"})
    assert viewer.get(INDEX + address).status_code == 400


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_of_a_list_can_be_asked_for(admin_client: Client, name: str) -> None:
    Alert.objects.create(kind="lost_worker", subject="x", severity="critical", message="x")
    Limit.objects.create(kind="concurrency", name="x", allowed=1)
    a_schedule()
    offered = [part.split("=")[0] for part in _addresses_of(admin_client.get(f"{INDEX}{name}/"))]
    assert bool(offered) == (name not in ("queue", "worker"))
    for parameter in offered:
        assert admin_client.get(f"{INDEX}{name}/?{parameter}=x").status_code in (200, 302), parameter


def _addresses_of(response: Any) -> list[str]:
    page = response.content.decode()
    return sorted(filter(None, {part.split('"')[0] for part in page.split('<a href="?')[1:]}))


@pytest.mark.parametrize("name", LISTS)
def test_odd_values_in_an_address_are_no_error_of_the_server(admin_client: Client, name: str) -> None:
    for parameter in ("q", "p", "o", "nonsense", *FILTERS[name]):
        for value in ODD:
            address = f"{INDEX}{name}/?{parameter}={quote(value)}"
            assert admin_client.get(address).status_code in (200, 302, 400), address[:200]


@pytest.mark.parametrize("name", LISTS)
def test_odd_ids_are_no_error_of_the_server(admin_client: Client, name: str) -> None:
    for value in ODD:
        for page in ("change/", "history/", "delete/", "act/", "live/", "runs/", "runs.csv"):
            address = f"{INDEX}{name}/{quote(value, safe='')}/{page}"
            for response in (admin_client.get(address), admin_client.post(address, {"act": "pause"})):
                assert response.status_code in (200, 301, 302, 403, 404, 405), address[:200]


@pytest.mark.parametrize("value", ODD)
def test_odd_choices_are_no_error_of_the_server(admin_client: Client, value: str) -> None:
    job = Job.objects.create(task="tests.tasks.nothing", status="DEAD", finished_at="2026-01-01T00:00:00Z")
    for action in ("retry", "cancel", "move_queue", "change_priority", "delete_jobs", value):
        data = {"action": action, "index": "0", "_selected_action": job.pk}
        entered = dict.fromkeys(("spread", "reason", "queue_name", "priority", "of_page"), value)
        for wrong in ({"_selected_action": value}, {"of_page": value}, {"confirmed": "yes", **entered}):
            response = admin_client.post(f"{INDEX}job/", {**data, **wrong})
            assert response.status_code in (200, 302, 400), wrong
    for name in ("alert", "schedule", "limit"):
        wrong = {"action": "delete_selected", "index": "0", "_selected_action": value}
        assert admin_client.post(f"{INDEX}{name}/", wrong).status_code in (200, 302, 400), name


@pytest.mark.parametrize("span", ["9" * 30 + "d", "99999999d", "3000000d", "-1d", "0s", "1e9d", "²d"])
def test_odd_spans_are_no_error_of_the_server(admin_client: Client, span: str) -> None:
    schedule = a_schedule()
    job = Job.objects.create(task="tests.tasks.nothing", status="DEAD", finished_at="2026-01-01T00:00:00Z")
    for path, data in (
        ("queue/act/", {"act": "pause", "name": "mail", "span": span}),
        (f"schedule/{schedule.pk}/act/", {"act": "pause", "span": span}),
        ("job/", {"action": "retry", "_selected_action": job.pk, "index": "0", "confirmed": "yes", "spread": span}),
    ):
        assert admin_client.post(INDEX + path, data).status_code in (200, 302), path
    assert not Schedule.objects.filter(pk=schedule.pk, resume_at__isnull=False).exists()
