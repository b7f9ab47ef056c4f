"""Addresses of the pages, on the site that is asked: a project may have several, and people may not know the others."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse


def site_of(request: HttpRequest) -> str:
    """Return the name of the site that a request is for."""
    found = request.resolver_match
    return getattr(request, "current_app", None) or (found.namespace if found else "admin")


def address(site: str, page: str, *args: Any) -> str:
    """Return the address of one of our pages: `job_change`, `schedule_runs`, `dead`."""
    return reverse(f"admin:django_reliable_jobs_{page}", args=args, current_app=site)
