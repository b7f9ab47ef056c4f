"""The channels through which alerts are told: e-mail and webhooks. Signals are sent whatever the channels.

A channel gets all that is new at once: when a hundred schedules fall silent together, a person gets one message.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from django.core.mail import EmailMessage

from django_reliable_jobs import web_requests
from django_reliable_jobs.alert_channels import name_of
from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine.alerts import QUIET
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.models import Notice

SIGNATURE = "X-Reliable-Jobs-Signature"  # sha256=HMAC of the body under the channel's secret
SHOWN_IN_MAIL = 50


class Channel(Protocol):
    """A way to tell of alerts; `send` raises if they were not told."""

    name: str

    def send(self, notices: Sequence[Notice]) -> None: ...


def channels() -> list[Channel]:
    """Return the channels that the settings name."""
    made: dict[str, type[Email] | type[Webhook]] = {"email": Email, "webhook": Webhook}
    return [made[each["kind"]](each) for each in settings.ALERT_CHANNELS]


class Email:
    """Through Django's e-mail, from DEFAULT_FROM_EMAIL."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.name = name_of(options)
        self._to = list(options["to"])
        self._prefix = options.get("subject_prefix", "[jobs] ")

    def send(self, notices: Sequence[Notice]) -> None:
        lines = [_line(notice) for notice in notices[:SHOWN_IN_MAIL]]
        if len(notices) > SHOWN_IN_MAIL:
            lines.append(f"And {len(notices) - SHOWN_IN_MAIL} more: manage.py jobs check")
        subject = _line(notices[0]) if len(notices) == 1 else f"{len(notices)} alerts: {_line(notices[0])}"
        first_line = "".join(each if each.isprintable() else " " for each in subject.splitlines()[0])
        EmailMessage(subject=(self._prefix + first_line)[:200], body="\n\n".join(lines), to=self._to).send()


class Webhook:
    """One POST of JSON, signed if the channel has a secret."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.name = name_of(options)
        self._url = options["url"]
        self._secret = options.get("secret")

    def send(self, notices: Sequence[Notice]) -> None:
        body = json.dumps({"alerts": [_as_json(notice) for notice in notices]}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "django-reliable-jobs"}
        if self._secret is not None:
            headers[SIGNATURE] = f"sha256={hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()}"
        web_requests.send("POST", self._url, body=body, headers=headers, allow_private=settings.ALLOW_PRIVATE_ADDRESSES)


def _line(notice: Notice) -> str:
    alert = notice.alert
    count = f" ({alert.count} times)" if alert.count > 1 and alert.kind in QUIET else ""
    match notice.event:
        case Notice.Event.RESOLVED:
            return f"RESOLVED {alert.kind} {alert.subject}: it was so since {as_local(alert.opened_at)}"
        case Notice.Event.REPEATED:
            return f"STILL {alert.severity.upper()} since {as_local(alert.opened_at)}: {alert.message}{count}"
    return f"{alert.severity.upper()} {alert.kind} {alert.subject}: {alert.message}{count}"


def _as_json(notice: Notice) -> dict[str, Any]:
    alert = notice.alert
    return {
        "event": notice.event,
        "id": alert.pk,
        "kind": alert.kind,
        "subject": alert.subject,
        "severity": alert.severity,
        "message": alert.message,
        "count": alert.count,
        "opened_at": alert.opened_at.isoformat(),
        "resolved_at": alert.resolved_at and alert.resolved_at.isoformat(),
    }
