"""What the templates of the admin need besides Django's own tags: the overview for the app's index, above all."""

from __future__ import annotations

from typing import Any

import django
from django import template
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag(takes_context=True)
def reliable_jobs_overview(context: dict[str, Any]) -> SafeString:
    """Return the overview for the person who asks."""
    # Here, as the library is loaded with every template engine, whether or not the admin is installed.
    from django_reliable_jobs.admin.overview import overview

    return SafeString(overview(context["request"]))


@register.simple_tag
def reliable_jobs_has_list_of_breadcrumbs() -> bool:
    """Return whether this Django styles breadcrumbs as a list."""
    return django.VERSION >= (6, 1)
