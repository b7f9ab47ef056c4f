"""The channels: what a person reads, what a webhook gets."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from django.core import mail

from django_reliable_jobs import notify
from django_reliable_jobs.engine import alerts, notices
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.models import Alert, Notice
from django_reliable_jobs.web_requests import RequestFailed
from tests.http_server import web_server

pytestmark = pytest.mark.django_db

SILENT = Finding(kind="schedule_silent", subject="nightly", message="The schedule nightly is silent.")


def notices_of(*found: Finding) -> list[Notice]:
    alerts.flip("default", found, ["schedule_silent", "dead_letters"], ["channel"])
    return notices.take("default", "channel")


def channel(settings: Any, **options: Any) -> notify.Channel:
    settings.RELIABLE_JOBS = {"ALERT_CHANNELS": [options], "ALLOW_PRIVATE_ADDRESSES": True}
    [made] = notify.channels()
    return made


class TestEmail:
    def test_it_tells_of_one_alert(self, settings: Any) -> None:
        channel(settings, kind="email", to=["ops@example.com"]).send(notices_of(SILENT))
        [message] = mail.outbox
        assert message.to == ["ops@example.com"]
        assert message.subject == "[jobs] CRITICAL schedule_silent nightly: The schedule nightly is silent."
        assert message.body == "CRITICAL schedule_silent nightly: The schedule nightly is silent."

    def test_a_hundred_alerts_at_once_are_one_message(self, settings: Any) -> None:
        found = [Finding(kind="schedule_silent", subject=f"s{n:03}", message="It is silent.") for n in range(100)]
        channel(settings, kind="email", to=["ops@example.com"], subject_prefix="[shop] ").send(notices_of(*found))
        [message] = mail.outbox
        assert message.subject.startswith("[shop] 100 alerts: CRITICAL schedule_silent s000")
        assert message.body.count("It is silent.") == notify.SHOWN_IN_MAIL
        assert message.body.endswith("And 50 more: manage.py jobs check")

    def test_it_says_that_an_alert_is_over(self, settings: Any) -> None:
        email = channel(settings, kind="email", to=["ops@example.com"])
        notices.said("default", notices_of(SILENT))
        email.send(notices_of())
        assert mail.outbox[0].subject.startswith("[jobs] RESOLVED schedule_silent nightly: it was so since 2")

    def test_a_message_with_line_breaks_makes_no_header(self, settings: Any) -> None:
        found = Finding(kind="schedule_silent", subject="nightly", message="a\nBcc: evil@example.com\r\n\x0bb")
        channel(settings, kind="email", to=["ops@example.com"]).send(notices_of(found))
        assert mail.outbox[0].subject == "[jobs] CRITICAL schedule_silent nightly: a"


class TestWebhook:
    def test_it_gets_json_that_is_signed(self, settings: Any) -> None:
        with web_server() as server:
            channel(settings, kind="webhook", url=server.url, secret="s3cret").send(notices_of(SILENT))
        [(method, path, body, headers)] = server.requests
        assert (method, path, headers["Content-Type"]) == ("POST", "/hook", "application/json")
        expected = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
        assert headers["X-Reliable-Jobs-Signature"] == f"sha256={expected}"
        alert = Alert.objects.get()
        assert json.loads(body) == {
            "alerts": [
                {
                    "event": "opened",
                    "id": alert.pk,
                    "kind": "schedule_silent",
                    "subject": "nightly",
                    "severity": "critical",
                    "message": "The schedule nightly is silent.",
                    "count": 1,
                    "opened_at": alert.opened_at.isoformat(),
                    "resolved_at": None,
                }
            ]
        }

    def test_without_a_secret_it_is_not_signed(self, settings: Any) -> None:
        with web_server() as server:
            channel(settings, kind="webhook", url=server.url).send(notices_of(SILENT))
        assert "X-Reliable-Jobs-Signature" not in server.requests[0][3]

    def test_a_private_address_is_refused_unless_a_setting_allows_it(self, settings: Any) -> None:
        webhook = channel(settings, kind="webhook", url="http://127.0.0.1:9/")
        settings.RELIABLE_JOBS = {}
        with pytest.raises(RequestFailed, match="not a public address"):
            webhook.send(notices_of(SILENT))

    def test_its_answer_counts(self, settings: Any) -> None:
        with web_server() as server:
            server.status = 500
            with pytest.raises(RequestFailed, match="500"):
                channel(settings, kind="webhook", url=server.url).send(notices_of(SILENT))
