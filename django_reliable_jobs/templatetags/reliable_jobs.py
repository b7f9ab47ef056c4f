"""The overview for the template of the app's index: any admin site shows it."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag(takes_context=True)
def reliable_jobs_overview(context: dict[str, Any]) -> SafeString:
    """Return the overview for the person who asks."""
    # Here, as the library is loaded with every template engine, whether or not the admin is installed.
    from django_reliable_jobs.admin.overview import overview

    return SafeString(overview(context["request"]))
