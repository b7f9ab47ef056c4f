"""The history of a schedule: a bar per run, what did not run and why, and the same as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.job_list import marked
from django_reliable_jobs.admin.words import breakable_moment, number, span_in_words
from django_reliable_jobs.engine import schedule_runs
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.schedule_runs import Run
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job, Schedule

DRAWN = 120
LISTED = 200
EXPORTED = 10_000
HEIGHT = 100
BAR = 10
COLUMNS = ("slot", "last_slot", "slots", "outcome", "reason", "job", "status", "started", "finished", "seconds", "said")
CLASSES = {"SUCCEEDED": "well", "DEAD": "badly", "CANCELLED": "idle"}


class ScheduleRuns:
    """Two pages of a schedule, for who may view it."""

    def get_urls(self: Any) -> list[URLPattern]:
        wrap, name = self.admin_site.admin_view, "django_reliable_jobs_schedule_runs"
        urls: list[URLPattern] = [
            path("<int:schedule_id>/runs/", wrap(self.runs_view), name=name),
            path("<int:schedule_id>/runs.csv", wrap(self.csv_view), name=f"{name}_csv"),
            *super().get_urls(),  # type: ignore[misc]
        ]
        return urls

    def runs_view(self: Any, request: HttpRequest, schedule_id: int) -> HttpResponse:
        """Show the last runs."""
        schedule = _viewed(self, request, schedule_id)
        found = _found(request, schedule, LISTED)
        of_all = schedule_runs.summary(found)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Runs"),
            "subtitle": schedule.name,
            "opts": self.opts,
            "media": self.media,
            "original": schedule,
            "drawing": _drawing(found[:DRAWN], self.admin_site.name),
            "runs": [_shown(run) for run in found],
            "summary": of_all,
            "rate": f"{100 * of_all.succeeded / of_all.ended:.1f} %" if of_all.ended else "-",
            "spans": {
                name: "-" if span is None else span_in_words(span)
                for name, span in (
                    ("median", of_all.median),
                    ("ninety_fifth", of_all.ninety_fifth),
                    ("longest", of_all.longest),
                )
            },
            "is_cut": len(found) == LISTED,
        }
        return TemplateResponse(request, "admin/django_reliable_jobs/schedule/runs.html", context)

    def csv_view(self: Any, request: HttpRequest, schedule_id: int) -> HttpResponse:
        """Answer with the last runs as CSV: moments in UTC."""
        schedule = _viewed(self, request, schedule_id)
        name = f"runs-{schedule.pk}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        response = HttpResponse(content_type="text/csv; charset=utf-8", headers=headers)
        writer = csv.writer(response)
        writer.writerow(COLUMNS)
        for run in _found(request, schedule, EXPORTED):
            writer.writerow([_inert(each) for each in _row(run)])
        return response


def _viewed(model_admin: Any, request: HttpRequest, schedule_id: int) -> Schedule:
    schedule: Schedule | None = model_admin.get_queryset(request).filter(pk=schedule_id).first()
    if not model_admin.has_view_permission(request, schedule):
        raise PermissionDenied
    if schedule is None:
        raise Http404
    return schedule


def _found(request: HttpRequest, schedule: Schedule, limit: int) -> list[Run]:
    """Return the last runs; what their jobs said, which may be of their arguments, only to who may view jobs."""
    found = schedule_runs.runs(default_database(), schedule.pk, limit=limit)
    if request.user.has_perm("django_reliable_jobs.view_job"):
        return found
    return [run._replace(said="") for run in found]


def _shown(run: Run) -> dict[str, Any]:
    when = breakable_moment(as_local(run.first))
    if run.slots != 1:
        many = _("many") if run.slots is None else number(run.slots)
        when = format_html(_("{} to {} ({})"), when, breakable_moment(as_local(run.last)), many)
    return {
        "run": run,
        "when": when,
        "state": marked(run.status) if run.status else "",
        "late": "" if run.started_at is None else span_in_words(run.started_at - run.first),
        "took": "" if run.took is None else span_in_words(run.took),
        "said": Truncator(run.said or "").chars(200),
    }


def _drawing(found: Sequence[Run], site: str) -> SafeString:
    """Return a bar per run, oldest first; what did not run is an empty place with a frame."""
    oldest_first = list(reversed(found))
    longest = max([run.took for run in oldest_first if run.took is not None], default=timedelta())
    bars = [_bar(place, run, longest, site) for place, run in enumerate(oldest_first)]
    return format_html(
        '<svg class="reliable-runs" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        *(max(len(bars), 30) * BAR, HEIGHT, _("The last runs, oldest first, by how long they took")),
        format_html_join("", "{}", ((bar,) for bar in bars)),
    )


def _bar(place: int, run: Run, longest: timedelta, site: str) -> SafeString:
    told = f"{as_local(run.first)}: "
    if run.outcome != "job":
        told += run.why
        kind, height = "absent", HEIGHT * 0.6
    else:
        words = [str(Job.Status(run.status).label)] if run.status else [_("its job is deleted")]
        told += ", ".join([*words, *([span_in_words(run.took)] if run.took is not None else [])])
        kind = CLASSES.get(run.status or "", "idle")
        share = run.took / longest if run.took is not None and longest else 0.0
        height = max(share * (HEIGHT - 4), 3.0)
    bar = format_html(
        '<rect class="reliable-run-{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        *(kind, place * BAR + 1, f"{HEIGHT - height:.1f}", BAR - 2, f"{height:.1f}", told),
    )
    if not run.status:
        return bar
    return format_html('<a href="{}" tabindex="-1">{}</a>', address(site, "job_change", run.job_id), bar)


def _row(run: Run) -> list[Any]:
    seconds = "" if run.took is None else run.took.total_seconds()
    return [
        *(_utc(run.first), _utc(run.last), run.slots, run.outcome, run.reason, run.job_id, run.status),
        *(_utc(run.started_at), _utc(run.finished_at), seconds, run.said),
    ]


def _utc(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat()


def _inert(value: Any) -> Any:
    """Return a value that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
