"""Dead letters, grouped by task and error; a group is tried again or deleted as a whole."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.job_acts import ACTS
from django_reliable_jobs.admin.words import breakable, number, when
from django_reliable_jobs.engine import dead_letters, inspection
from django_reliable_jobs.engine.dead_letters import MOST_GROUPED, NO_ERROR, Group
from django_reliable_jobs.engine.transaction import default_database

OFFERED = ("retry", "delete_jobs")


def dead_letters_view(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Show the groups. Their buttons ask in the list of jobs, narrowed to the group."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    using = default_database()
    found, now = dead_letters.groups(using), inspection.now(using)
    total = sum(each.jobs for each in found)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Dead letters"),
        "opts": model_admin.opts,
        "media": model_admin.media,
        "groups": [_shown(each, now, model_admin.admin_site.name) for each in found],
        "acts": [ACTS[name] for name in OFFERED if model_admin.may(request, ACTS[name])],
        "count": total,
        "total": number(total),
        "is_cut": total >= MOST_GROUPED,
    }
    return TemplateResponse(request, "admin/django_reliable_jobs/job/dead.html", context)


def _shown(group: Group, now: Any, site: str) -> dict[str, Any]:
    query = urlencode({"status": "DEAD", "task": group.task, "error": group.error})
    return {
        "group": group,
        "task": breakable(group.task),
        "error": "" if group.error == NO_ERROR else group.error,
        "count": number(group.jobs),
        "first": when(group.first, now),
        "last": when(group.last, now),
        "url": f"{address(site, 'job_changelist')}?{query}",
    }
