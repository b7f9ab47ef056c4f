"""Schedules: to add, change, pause, run now; with a preview of what they will do."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import flatten_fieldsets
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.admin.read_only import BoundedPaginator, OnlyItsFilters
from django_reliable_jobs.admin.schedule_actions import ScheduleActions
from django_reliable_jobs.admin.schedule_columns import ScheduleColumns, TouchedByNextClockChange
from django_reliable_jobs.admin.schedule_form import RecurrenceForm, ScheduleForm
from django_reliable_jobs.admin.schedule_runs import ScheduleRuns
from django_reliable_jobs.engine import inspection, reconcile, schedule_history, schedules, slots
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.exceptions import ReliableJobsError
from django_reliable_jobs.models import Job, Schedule
from django_reliable_jobs.models.schedule import is_paused
from django_reliable_jobs.preview import Preview, preview
from django_reliable_jobs.slots import Timeline

LAST_DECIDED = 10
IS_PREVIEW = "_preview"


class NeverValid:
    """A form that is shown again, whatever was entered."""

    def is_valid(self) -> bool:
        return False


@admin.register(Schedule)
class ScheduleAdmin(ScheduleRuns, ScheduleActions, ScheduleColumns, OnlyItsFilters, admin.ModelAdmin):  # type: ignore[type-arg]
    form = ScheduleForm
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_display = ("named", "short_state", "runs_in_short", "next_run", "last_run")
    list_filter = (TouchedByNextClockChange, "managed_by", "overlap")
    search_fields = ("name", "task")
    ordering = ("name",)
    list_per_page = 50
    actions = ("pause", "resume", "run_now", "reset_to_code")
    change_form_template = "admin/django_reliable_jobs/schedule/change_form.html"
    fieldsets = (
        (None, {"fields": ("name", "task", "kwargs")}),
        (
            _("When"),
            {
                "fields": (
                    *("kind", "expression", "timezone", "on_gap", "on_fold", "interval", "anchor", "at"),
                    *("starts_at", "ends_at"),
                )
            },
        ),
        (
            _("If runs meet, are missed or are late"),
            {
                "fields": (
                    *("overlap", "catch_up", "catch_up_limit", "start_deadline", "jitter"),
                    *("alert_after", "ping_url"),
                )
            },
        ),
        (
            _("Queue and history"),
            {"fields": ("queue_name", "priority", "keep_succeeded", "keep_failed"), "classes": ("collapse",)},
        ),
    )
    now_fields = ("state", "next_run", "last_run")
    code_fields = ("managed", "overridden")
    view_fieldset = (
        None,
        {
            "fields": (
                "name",
                "task",
                "shown_arguments",
                "runs",
                "overlap",
                "catch_up",
                "start_deadline",
                "jitter",
                "alert_after",
            )
        },
    )

    class Media:
        css = {"all": ["django_reliable_jobs/schedule.css", "django_reliable_jobs/admin.css"]}
        js = ["django_reliable_jobs/schedule.js"]

    # --- what is shown

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        return super().get_queryset(request).using(default_database())

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        if obj is None:
            return self.fieldsets
        now = (_("Now"), {"fields": (*self.now_fields, *(self.code_fields if is_declared(obj) else ()))})
        if not self.has_change_permission(request, obj):
            return (now, self.view_fieldset)
        return (now, *self.fieldsets)

    def get_readonly_fields(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        if obj is None:
            return ()
        if not self.has_change_permission(request, obj):
            return flatten_fieldsets(self.get_fieldsets(request, obj))
        return (*self.now_fields, *self.code_fields, "name", "task") if is_declared(obj) else self.now_fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        if IS_PREVIEW not in request.POST:
            return form
        return type("PreviewedForm", (NeverValid, form), {})

    def has_delete_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """Let nobody delete what the next sync with the code would make again."""
        return super().has_delete_permission(request, obj) and not (obj is not None and must_stay(obj))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Name among what protects from a deletion the schedules that the code declares."""
        deletable, counts, permissions, protected = super().get_deleted_objects(objs, request)
        declared = [_("%s: declared in code") % schedule for schedule in objs if must_stay(schedule)]
        missing = set() if super().has_delete_permission(request) else permissions
        return deletable, counts, missing, [*protected, *declared]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj: Schedule | None = context.get("original")
        context["preview"] = _preview_of(context["adminform"].form, obj)
        context["show_preview_button"] = context.get("has_change_permission") or obj is None
        if obj is not None:
            context["may_pause"] = self.has_pause_permission(request)
            context["is_paused"] = is_paused(obj, slots.now(default_database()))
            decided = schedule_history.last_decided(default_database(), obj.pk, limit=LAST_DECIDED)
            statuses = inspection.find_statuses(default_database(), (each.job_id for each in decided if each.job_id))
            context["decided"] = [
                {
                    "when": _when(each),
                    "job_id": each.job_id,
                    "status": Job.Status(statuses[each.job_id]).label if each.job_id in statuses else "",
                    "reason": each.reason,
                }
                for each in decided
            ]
        return super().render_change_form(request, context, *args, **kwargs)

    # --- the live preview

    def get_urls(self) -> list[URLPattern]:
        name = "django_reliable_jobs_schedule_preview"
        return [path("preview/", self.admin_site.admin_view(self.preview_view), name=name), *super().get_urls()]

    def preview_view(self, request: HttpRequest) -> JsonResponse:
        """Answer with the next runs of what the form holds at this moment, or with its mistakes."""
        if not (self.has_add_permission(request) or self.has_change_permission(request)):
            return JsonResponse({"errors": [str(_("You may not change schedules."))]}, status=403)
        form = RecurrenceForm(request.POST)
        form.is_valid()
        timeline = form.timeline()
        if timeline is None:
            errors = [f"{form.fields[name].label}: {each}" for name, all_of in form.errors.items() for each in all_of]
            return JsonResponse({"errors": errors})
        return JsonResponse(_as_json(_preview(timeline)))

    # --- what is changed

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        using, options = default_database(), form.options()
        if change:
            changes = options.as_columns()
            changes = {name: changes[name] for name in changes if name not in ("effective_gap", "effective_fold")}
            saved = schedules.edit(
                using, obj.pk, name=form.cleaned_data.get("name", obj.name), task=form.task_name(), **changes
            )
        else:
            saved = schedules.create(using, name=form.cleaned_data["name"], task=form.task_name(), options=options)
        for field in Schedule._meta.concrete_fields:
            setattr(obj, field.attname, getattr(saved, field.attname))
        obj._state.adding, obj._state.db = False, using

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        schedules.delete(default_database(), [obj.pk])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        schedules.delete(default_database(), [each.pk for each in queryset if not must_stay(each)])

    def response_add(self, request: HttpRequest, obj: Schedule, post_url_continue: str | None = None) -> HttpResponse:
        """Show the schedule that was added, with what it will do, instead of the list."""
        if IS_POPUP_VAR not in request.POST and "_addanother" not in request.POST:
            posted: Any = request.POST.copy()
            posted["_continue"] = "1"
            request.POST = posted
        return super().response_add(request, obj, post_url_continue)


def is_declared(schedule: Schedule) -> bool:
    """Return whether the code declares it, or did."""
    return schedule.managed_by == Schedule.ManagedBy.CODE


def must_stay(schedule: Schedule) -> bool:
    """Return whether the code declares it: the next sync would make it again."""
    return is_declared(schedule) and not reconcile.is_left(schedule)


def _preview(timeline: Timeline) -> Preview:
    zone = timezone.get_current_timezone_name()
    return preview(timeline, slots.now(default_database()), display_zone=zone)


def _preview_of(form: Any, obj: Schedule | None) -> Preview | None:
    """Return the preview of what was entered, or of what is in the row; None if neither can hold."""
    if form.is_bound and isinstance(form, RecurrenceForm):
        form.errors  # noqa: B018 - cleans it
        timeline = form.timeline()
        return _preview(timeline) if timeline else None
    try:
        return _preview(slots.timeline_of(obj)) if obj is not None else None
    except ReliableJobsError:
        return None


def _as_json(shown: Preview) -> dict[str, Any]:
    return {
        "description": shown.description,
        "timezone": shown.timezone,
        "warnings": shown.warnings,
        "runs": [{"local": run.local, "utc": run.utc, "note": run.note} for run in shown.runs],
    }


def _when(decided: schedule_history.Decided) -> str:
    if decided.count == 1:
        return as_local(decided.first)
    number = _("many") if decided.count is None else decided.count
    return f"{as_local(decided.first)} to {as_local(decided.last)} ({number})"
