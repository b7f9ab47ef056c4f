"""Schedules on the overview: those that did not run, or not well, stand first and say why."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.words import clock_time, number, when
from django_reliable_jobs.engine import standings
from django_reliable_jobs.engine.standings import Absence, Failure, Standing
from django_reliable_jobs.engine.unstarted import Waiting
from django_reliable_jobs.models import Job, Slot

MOST_SHOWN = 30
LONGEST_REASON = 160
LATE = (Slot.Reason.DEADLINE, Slot.Reason.MISFIRE, Slot.Reason.LIMIT)  # decided, but long after
MARKS = {  # of each health: the mark that its words carry
    "broken": "badly",
    "overdue": "badly",
    "absent": "badly",
    "stuck": "badly",
    "failed": "badly",
    "retrying": "paused",
    "skipped": "paused",
    "cancelled": "paused",
    "paused": "paused",
    "well": "well",
    "new": "idle",
    "ended": "idle",
}


def schedules(using: str, now: datetime, *, site: str, sees_jobs: bool) -> dict[str, Any]:
    """Return what the overview shows of schedules; of what their jobs said only to who may view jobs."""
    found, has_more = standings.schedules(using, now)
    if not sees_jobs:
        found = [each.without_words_of_jobs() for each in found]
    in_trouble = sum(1 for each in found if MARKS[each.health] == "badly")
    return {
        "schedules": [_line(each, now, site) for each in found[: max(MOST_SHOWN, in_trouble)]],
        "schedules_in_trouble": in_trouble,
        "looked_at": number(len(found)) if has_more else "",
        "has_more_schedules": has_more or len(found) > max(MOST_SHOWN, in_trouble),
    }


def _line(standing: Standing, now: datetime, site: str) -> dict[str, Any]:
    schedule, last = standing.schedule, standing.last_job
    return {
        "schedule": schedule,
        "mark": MARKS[standing.health],
        "health": _health(standing),
        "reasons": _reasons(standing, now, site),
        "url": address(site, "schedule_runs", schedule.pk),
        "next": when(schedule.next_run_at, now) if schedule.next_run_at else "-",
        "last": "" if last is None else Job.Status(last.status).label,
        "last_url": "" if last is None else address(site, "job_change", last.id),
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
        "stuck": _("has not started"),
        "failed": _("failed"),
        "retrying": _("is tried again"),
        "skipped": _("skipped"),
        "cancelled": pgettext("a schedule's last job", "cancelled"),
        "paused": _("paused"),
        "well": _("well"),
        "new": _("has not run yet"),
        "ended": _("ended"),
    }[standing.health]


def _reasons(standing: Standing, now: datetime, site: str) -> list[SafeString | str]:
    schedule, reasons = standing.schedule, list[SafeString | str]()
    if schedule.error:
        reasons.append(_shortened(schedule.error))
    if standing.health == "overdue" and schedule.next_run_at:
        reasons.append(format_html(_("due {}, and no scheduler has decided it"), clock_time(schedule.next_run_at, now)))
    if standing.health == "paused":
        until = format_html(_("until {}"), clock_time(schedule.resume_at, now)) if schedule.resume_at else ""
        reasons.append(format_html("{} {}", until, schedule.pause_reason))
    if standing.expired is not None:
        reasons.append(_expired(standing.expired, now, site))
    if standing.absence is not None:
        reasons.append(_absent(standing.absence, now))
    if standing.waiting is not None:
        reasons.append(_waits(standing.waiting, now, site))
    if standing.failure is not None:
        reasons.append(_failed(standing.failure, site))
    elif standing.health in ("failed", "cancelled") and standing.last_job is not None:
        reasons.append(_shortened(standing.last_job.reason))
    return [each for each in reasons if each]


def _absent(absence: Absence, now: datetime) -> SafeString:
    told = format_html("{}: {}", clock_time(absence.last, now), Slot.Reason(absence.reason).label)
    if absence.reason in LATE:
        told = format_html(_("{}; no scheduler had decided it by {}"), told, clock_time(absence.decided, now))
    if absence.slots is None:
        return format_html("{} {}", told, _("(many more in the last 24 hours)"))
    others = absence.slots - 1
    if others < 1:
        return told
    more = ngettext("(and %s more in the last 24 hours)", "(and %s more in the last 24 hours)", others) % number(others)
    return format_html("{} {}", told, more)


def _waits(waiting: Waiting, now: datetime, site: str) -> SafeString:
    """Return what holds a job that has not started, or when one that failed is tried again."""
    job = _job_link(waiting.job_id, f"#{waiting.job_id}", site)
    if not waiting.is_due:
        told = _("attempt {} of {} did not succeed, {} is tried again at {}")
        tried = format_html(told, waiting.attempt, waiting.max_attempts, job, clock_time(waiting.run_after, now))
        return format_html("{}{}{}", tried, ": " if waiting.reason else "", _shortened(waiting.reason))
    told = {
        "paused": _("{} waits since {}: its queue, {}, is paused"),
        "unserved": _("{} waits since {}: no worker serves its queue, {}"),
        "in line": _("{} waits since {} in the queue {}"),
    }[waiting.held_by]
    return format_html(told, job, clock_time(waiting.run_after, now), waiting.queue_name)


def _expired(expired: Failure, now: datetime, site: str) -> SafeString:
    told = ngettext("%s job was not started in time", "%s jobs were not started in time", expired.jobs)
    link = _job_link(expired.job_id, told % number(expired.jobs), site)
    return format_html(_("{}: no worker was free before {}"), link, clock_time(expired.last, now))


def _failed(failure: Failure, site: str) -> SafeString:
    told = ngettext("%s job died in the last 24 hours", "%s jobs died in the last 24 hours", failure.jobs)
    link, reason = _job_link(failure.job_id, told % number(failure.jobs), site), _shortened(failure.reason)
    return format_html("{}{}{}", link, ": " if reason else "", reason)


def _job_link(job_id: int, text: str, site: str) -> SafeString:
    return format_html('<a class="reliable-inline" href="{}">{}</a>', address(site, "job_change", job_id), text)


def _shortened(text: str | None) -> str:
    return Truncator(text or "").chars(LONGEST_REASON)
