"""Alerts in the Django admin."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from django_reliable_jobs.engine import alerts
from django_reliable_jobs.models import Alert

pytestmark = pytest.mark.django_db

LIST = reverse("admin:django_reliable_jobs_alert_changelist")


@pytest.fixture(autouse=True)
def two_alerts(db: None) -> None:
    alerts.note("default", "worker_lost", "web-1", "The worker web-1:7 was lost.")
    alerts.note("default", "slot_missed", "nightly", "<b>It</b> missed a slot.")
    Alert.objects.filter(subject="nightly").update(resolved_at=Now())


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("root"))
    return client


def acknowledge(client: Client) -> int:
    chosen = list(Alert.objects.values_list("pk", flat=True))
    return client.post(LIST, {"action": "acknowledge", "_selected_action": chosen}, follow=True).status_code


def test_open_alerts_are_listed_and_others_on_demand(root: Client) -> None:
    page = root.get(LIST).content.decode()
    assert "web-1" in page and "missed a slot" not in page
    page = root.get(LIST, {"state": "all"}).content.decode()
    assert "web-1" in page and "&lt;b&gt;It&lt;/b&gt; missed a slot." in page
    assert "web-1" not in root.get(LIST, {"state": "resolved"}).content.decode()


def test_a_page_shows_all_of_one(root: Client) -> None:
    page = root.get(reverse("admin:django_reliable_jobs_alert_change", args=[Alert.objects.first().pk]))  # type: ignore[union-attr]
    assert page.status_code == 200


def test_a_person_acknowledges_what_is_open(root: Client) -> None:
    assert acknowledge(root) == 200
    assert dict(Alert.objects.values_list("subject", "acknowledged_by")) == {"web-1": "root", "nightly": ""}


def test_who_may_only_view_acknowledges_nothing(client: Client) -> None:
    user = get_user_model().objects.create_user("viewer", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_alert"))
    client.force_login(user)
    assert "acknowledge" not in client.get(LIST).content.decode()
    acknowledge(client)
    assert not Alert.objects.exclude(acknowledged_by="").exists()
