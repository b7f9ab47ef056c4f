"""The health view: what `jobs check` tells, for a monitor that asks by HTTP.

    path("health/", django_reliable_jobs.health.health)

It is closed until HEALTH_TOKEN is set. The monitor shows it as `Authorization: Bearer TOKEN`, or as `?token=TOKEN`.
"""

from __future__ import annotations

import hmac
from typing import Any

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import alerts, findings
from django_reliable_jobs.engine.transaction import default_database


@transaction.non_atomic_requests
@never_cache
@require_safe
def health(request: HttpRequest) -> HttpResponse:
    """Answer 200, or 503 if something is critical or the database does not answer; 403 without the token."""
    if not is_allowed(request):
        return JsonResponse({"status": "forbidden", "problems": []}, status=403)
    using = default_database()
    try:
        found, kinds = findings.look(using)
        found += alerts.find_events(using)
    except DatabaseError:
        connections[using].close()
        return _failure("critical", [_NO_DATABASE])
    problems: list[dict[str, Any]] = [findings.as_json(each) for each in found]
    is_complete = len(kinds) == sum(map(len, findings.PROBES))
    if not findings.is_healthy(found) or not is_complete:
        return _failure("critical" if is_complete else "unknown", problems)
    return JsonResponse({"status": "warning" if found else "ok", "problems": problems})


_NO_DATABASE = {"kind": "database", "severity": "critical", "message": "The database did not answer."}


def _failure(status: str, problems: list[dict[str, Any]]) -> HttpResponse:
    response = JsonResponse({"status": status, "problems": problems}, status=503)
    response._has_been_logged = True  # type: ignore[attr-defined] # or Django mails an error to ADMINS at every look
    return response


def is_allowed(request: HttpRequest) -> bool:
    """Return whether a request shows the token."""
    if settings.HEALTH_TOKEN is None:
        return False
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    shown = token.strip() if scheme.lower() == "bearer" else request.GET.get("token", "")
    return hmac.compare_digest(shown.encode(), settings.HEALTH_TOKEN.encode())
