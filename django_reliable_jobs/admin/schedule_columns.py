"""What lists and pages of schedules say about each, and the filter by clock changes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import masking
from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.schedule_arguments import shown_arguments
from django_reliable_jobs.admin.words import breakable, breakable_moment
from django_reliable_jobs.engine import reconcile, schedule_history, slots
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.schedule_history import LastJob
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.exceptions import InvalidRecurrence
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.models.schedule import is_paused
from django_reliable_jobs.preview import next_change_touches
from django_reliable_jobs.recurrence import Cron, from_dict
from django_reliable_jobs.recurrence.clock_changes import load_zone
from django_reliable_jobs.schedule_options import SPANS
from django_reliable_jobs.spans import write_span

SHORT_ERROR = 70


class TouchedByNextClockChange(admin.SimpleListFilter):
    """Schedules of which the next clock change of their zone skips, repeats or moves a run."""

    title = _("clock change")
    parameter_name = "clock_change"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("next", _("touched by the next one"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        if self.value() != "next":
            return queryset
        crons = Schedule.objects.using(default_database()).filter(recurrence__kind="cron")
        columns = ("recurrence", "effective_gap", "effective_fold")
        moment, touched = slots.now(default_database()), []
        # Each rule once, however many schedules have it.
        for values in crons.order_by().values(*columns).distinct():
            try:
                if next_change_touches(slots.timeline_of(Schedule(**values)), moment):
                    touched.append(values["recurrence"])
            except InvalidRecurrence:
                continue
        return queryset.filter(recurrence__in=touched)


class WithLastJobs(ChangeList):
    """Reads the last job of each schedule of a page in one query."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        last = schedule_history.last_jobs(default_database(), [schedule.pk for schedule in self.result_list])
        for schedule in self.result_list:
            schedule.last_job = last.get(schedule.pk)


class ScheduleColumns:
    """Columns of a list and lines of a page. Moments are in the schedule's zone and in UTC."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return WithLastJobs

    @admin.display(description=_("runs"))
    def runs(self, schedule: Schedule) -> str:
        try:
            return f"{schedule.rule().describe().split('. ')[0].removesuffix('.')}."
        except InvalidRecurrence as error:
            return str(error)

    @admin.display(description=_("next run"), ordering="next_run_at")
    def next_run(self, schedule: Schedule) -> SafeString | str:
        if schedule.next_run_at is None:
            return "-"
        return in_both_zones(schedule)

    @admin.display(description=_("last run"))
    def last_run(self: Any, schedule: Schedule) -> SafeString | str:
        last = getattr(schedule, "last_job", None) or schedule_history.last_jobs(
            default_database(), [schedule.pk] if not hasattr(schedule, "last_job") else []
        ).get(schedule.pk)
        return "-" if last is None else last_job(last, self.admin_site.name)

    @admin.display(description=_("arguments"))
    def shown_arguments(self, schedule: Schedule) -> str:
        return json.dumps(shown_arguments(schedule), ensure_ascii=False)

    @admin.display(description=_("state"))
    def state(self, schedule: Schedule) -> SafeString | str:
        moment = slots.now(default_database()) if schedule.paused_at else None
        if moment is not None and is_paused(schedule, moment):
            until = f" {_('until')} {as_local(schedule.resume_at)}" if schedule.resume_at else ""
            reason = f": {schedule.pause_reason}" if schedule.pause_reason else ""
            return f"{_('paused')}{until}{reason}"
        if schedule.error:
            return format_html('<strong class="schedule-broken">{}</strong> {}', _("broken:"), schedule.error)
        return str(_("active")) if schedule.next_run_at else str(_("ended: no further runs"))

    @admin.display(description=_("state"))
    def short_state(self, schedule: Schedule) -> SafeString | str:
        if schedule.error and schedule.paused_at is None:
            error = Truncator(schedule.error).chars(SHORT_ERROR)
            return format_html(
                '<div class="schedule-error"><strong class="schedule-broken">{}</strong> {}</div>', _("broken:"), error
            )
        return self.state(schedule)

    @admin.display(description=_("name"), ordering="name")
    def named(self, schedule: Schedule) -> SafeString:
        return format_html('{}<div class="schedule-small">{}</div>', schedule.name, breakable(schedule.task))

    @admin.display(description=_("runs"))
    def runs_in_short(self, schedule: Schedule) -> str:
        return self.runs(schedule).split(" of elapsed time")[0].removesuffix(".")

    @admin.display(description=_("managed by"))
    def managed(self, schedule: Schedule) -> str:
        return str(schedule.get_managed_by_display())

    @admin.display(description=_("differs from the code in"))
    def overridden(self, schedule: Schedule) -> SafeString | str:
        names = reconcile.overridden_fields(schedule)
        if not names or schedule.declared is None:
            return "-"
        values = declared_values(schedule)
        told = ", ".join(f"{name} ({_('code')}: {declared_value(name, values[name])})" for name in names)
        return format_html('{} <span class="help">{}</span>', told, _("Reset it by the action “Reset to the code”."))


def declared_values(schedule: Schedule) -> dict[str, Any]:
    """Return what the code declares, in its stored form, without what nobody is to see."""
    values = dict(schedule.declared or {})
    if values.get("kwargs"):
        values["kwargs"] = masking.masked(schedule.task, [], values["kwargs"])[1]
    if values.get("ping_url"):
        values["ping_url"] = masking.MASK
    return values


def declared_value(name: str, value: Any) -> str:
    """Return a value that the code declares, from its stored form, as people read it."""
    if value is None or value == "":
        return str(_("none"))
    if name in SPANS:
        return write_span(timedelta(seconds=value))
    if name == "recurrence":
        return from_dict(value).describe().split(". ")[0].removesuffix(".")
    return str(value)


def in_both_zones(schedule: Schedule) -> SafeString:
    """Return the next run in the schedule's zone above UTC."""
    moment = schedule.next_run_at
    assert moment is not None  # noqa: S101 - told by the caller
    utc = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    try:
        rule = schedule.rule()
        local = moment.astimezone(load_zone(rule.timezone)) if isinstance(rule, Cron) else None
    except InvalidRecurrence:
        local = None
    first = as_local(moment) if local is None else f"{local:%Y-%m-%d %H:%M:%S %Z}"
    if first == utc:
        return breakable_moment(utc)
    return format_html('{}<div class="schedule-small">{}</div>', breakable_moment(first), breakable_moment(utc))


def last_job(last: LastJob, site: str) -> SafeString:
    """Return the last job's outcome and moment, with a link to it."""
    moment = last.finished_at or last.started_at or last.slot
    return format_html(
        '<a href="{}">{}</a>{}',
        address(site, "job_change", last.id),
        Job.Status(last.status).label,
        format_html('<div class="schedule-small">{}</div>', breakable_moment(as_local(moment))) if moment else "",
    )
