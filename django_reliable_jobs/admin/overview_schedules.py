"""Schedules on the overview: those that did not run, or not well, stand first and say why."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_reliable_jobs.admin.words import clock_time, number, when
from django_reliable_jobs.engine import standings
from django_reliable_jobs.engine.standings import Absence, Failure, Standing
from django_reliable_jobs.models import Job, Slot

MOST_SHOWN = 30
LONGEST_REASON = 160
JOB_PAGE = "admin:django_reliable_jobs_job_change"
MARKS = {  # of each health: the mark that its words carry
    "broken": "badly",
    "overdue": "badly",
    "absent": "badly",
    "failed": "badly",
    "skipped": "paused",
    "paused": "paused",
    "well": "well",
    "ended": "idle",
}


def schedules(using: str, now: datetime) -> dict[str, Any]:
    """Return what the overview shows of schedules."""
    found, has_more = standings.schedules(using, now)
    in_trouble = sum(1 for each in found if MARKS[each.health] == "badly")
    return {
        "schedules": [_line(each, now) for each in found[: max(MOST_SHOWN, in_trouble)]],
        "schedules_in_trouble": in_trouble,
        "has_more_schedules": has_more or len(found) > max(MOST_SHOWN, in_trouble),
    }


def _line(standing: Standing, now: datetime) -> dict[str, Any]:
    schedule, last = standing.schedule, standing.last_job
    return {
        "schedule": schedule,
        "mark": MARKS[standing.health],
        "health": _health(standing),
        "reasons": _reasons(standing, now),
        "url": reverse("admin:django_reliable_jobs_schedule_runs", args=[schedule.pk]),
        "next": when(schedule.next_run_at, now) if schedule.next_run_at else "-",
        "last": "" if last is None else Job.Status(last.status).label,
        "last_url": "" if last is None else reverse(JOB_PAGE, args=[last.id]),
        "last_when": "" if last is None else _moment_of(last, now),
    }


def _moment_of(last: Any, now: datetime) -> SafeString | str:
    moment = last.finished_at or last.started_at or last.slot
    return when(moment, now) if moment else ""


def _health(standing: Standing) -> str:
    return {
        "broken": _("broken"),
        "overdue": _("overdue"),
        "absent": _("did not run"),
        "failed": _("failed"),
        "skipped": _("skipped"),
        "paused": _("paused"),
        "well": _("well"),
        "ended": _("ended"),
    }[standing.health]


def _reasons(standing: Standing, now: datetime) -> list[SafeString | str]:
    schedule, reasons = standing.schedule, list[SafeString | str]()
    if schedule.error:
        reasons.append(Truncator(schedule.error).chars(LONGEST_REASON))
    if standing.health == "overdue" and schedule.next_run_at:
        reasons.append(format_html(_("due {}, and no scheduler has decided it"), clock_time(schedule.next_run_at, now)))
    if standing.health == "paused":
        until = format_html(_("until {}"), clock_time(schedule.resume_at, now)) if schedule.resume_at else ""
        reasons.append(format_html("{} {}", until, schedule.pause_reason))
    if standing.absence is not None:
        reasons.append(_absent(standing.absence, now))
    if standing.failure is not None:
        reasons.append(_failed(standing.failure, now))
    return reasons


def _absent(absence: Absence, now: datetime) -> SafeString:
    why = Slot.Reason(absence.reason).label
    told = format_html("{}: {}", clock_time(absence.last, now), why)
    if absence.slots is None:
        return format_html("{} {}", told, _("(many more in the last 24 hours)"))
    others = absence.slots - 1
    if others < 1:
        return told
    more = ngettext("(and %s more in the last 24 hours)", "(and %s more in the last 24 hours)", others) % number(others)
    return format_html("{} {}", told, more)


def _failed(failure: Failure, now: datetime) -> SafeString:
    told = ngettext("%s job died in the last 24 hours", "%s jobs died in the last 24 hours", failure.jobs)
    link = format_html(
        '<a class="reliable-inline" href="{}">{}</a>',
        reverse(JOB_PAGE, args=[failure.job_id]),
        told % number(failure.jobs),
    )
    reason = Truncator(failure.reason or "").chars(LONGEST_REASON)
    return format_html("{}{}{}", link, ": " if reason else "", reason)
