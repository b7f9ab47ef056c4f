"""Jobs and their attempts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import registry
from django_reliable_jobs.admin import progress
from django_reliable_jobs.admin.overview import overview_view
from django_reliable_jobs.admin.read_only import ReadOnly, ReadOnlyAdmin
from django_reliable_jobs.admin.steps import StepInline
from django_reliable_jobs.admin.words import as_json, breakable, on_two_lines, preformatted
from django_reliable_jobs.engine import history, inspection, schedule_history
from django_reliable_jobs.engine.inspection import WIDE_COLUMNS, as_local
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Attempt, Job

MOST_ATTEMPTS = 20
SCHEDULE_PAGE = "admin:django_reliable_jobs_schedule_change"
LONGEST_ID = 19  # digits


class StatusFilter(admin.SimpleListFilter):
    """Each status in the words that its index knows."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return Job.Status.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        status = self.value()
        return inspection.with_status(queryset, status) if status in Job.Status.values else queryset


class NarrowList(ChangeList):
    """Reads none of the columns that may be large."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        return super().get_queryset(request, *args, **kwargs).defer(*WIDE_COLUMNS)


class LastAttempts(BaseInlineFormSet):  # type: ignore[type-arg]
    """The newest attempts: a job that was snoozed a thousand times has a thousand."""

    def get_queryset(self) -> QuerySet[Attempt]:
        if not hasattr(self, "_newest"):
            self._newest = super().get_queryset().order_by("-claim")[:MOST_ATTEMPTS]
        return self._newest


class AttemptInline(ReadOnly, admin.StackedInline):  # type: ignore[type-arg]
    model = Attempt
    formset = LastAttempts
    extra = 0
    verbose_name_plural = _("The last attempts that did not succeed, newest first")
    fields = ("outcome", "started", "duration", "worker", "error", "trace")
    readonly_fields = fields

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let whoever may view a job view its attempts."""
        return True

    @admin.display(description=_("started"))
    def started(self, attempt: Attempt) -> str:
        return as_local(attempt.started_at)

    @admin.display(description=_("duration"))
    def duration(self, attempt: Attempt) -> str:
        return f"{attempt.duration.total_seconds():.3f} s"

    @admin.display(description=_("error"))
    def error(self, attempt: Attempt) -> str:
        return ": ".join(filter(None, [attempt.error_class, attempt.error_message]))

    @admin.display(description=_("traceback"))
    def trace(self, attempt: Attempt) -> SafeString | str:
        return preformatted(attempt.traceback)


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ("id", "task_name", "status", "attempts", "queue_name", "priority", "due_at", "ended_at")
    list_display_links = ("id", "task_name")
    list_filter = (StatusFilter,)
    search_fields = ("id", "task")  # for the box; get_search_results says what it does
    search_help_text = _("An id, or the beginning or the end of a task's name: shop.tasks, or add")
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("task", "status", "reason", "arguments", "keyword_arguments", "returned")}),
        (_("Queue and attempts"), {"fields": ("queue_name", "priority", "attempts", "losses")}),
        (_("Moments"), {"fields": ("enqueued", "due", "started", "finished", "expires")}),
    )
    readonly_fields = (
        *("of_schedule", "how_far", "arguments", "keyword_arguments", "returned", "attempts"),
        *("enqueued", "due", "started", "finished", "expires"),
    )

    class Media:
        css = {"all": ["django_reliable_jobs/admin.css"]}

    def get_urls(self) -> list[URLPattern]:
        overview = path("overview/", self.admin_site.admin_view(overview_view), name="django_reliable_jobs_overview")
        return [overview, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return NarrowList

    def get_fieldsets(self, request: HttpRequest, obj: Job | None = None) -> Any:
        of_schedule = ((None, {"fields": ("of_schedule",)}),) if obj is not None and obj.schedule_id else ()
        told = ((_("Progress"), {"fields": ("how_far",)}),) if obj is not None and progress.has_told(obj) else ()
        return (*self.fieldsets[:1], *of_schedule, *told, *self.fieldsets[1:])

    def get_inlines(self, request: HttpRequest, obj: Job | None = None) -> list[Any]:
        if obj is None:
            return []
        has_steps = history.find_steps(obj.checkpoints.all(), obj.pk, obj.run).exists()
        return [*([StepInline] if has_steps else []), *([AttemptInline] if obj.attempts.exists() else [])]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """Find an id exactly, else tasks by the beginning or the last parts of their name: no join, so no DISTINCT."""
        term = search_term.strip()
        if term.isascii() and term.isdigit() and len(term) <= LONGEST_ID:
            return queryset.filter(pk=int(term)), False
        if term:
            queryset = queryset.filter(Q(task__startswith=term) | Q(task__endswith=f".{term}"))
        return queryset, False

    @admin.display(description=_("how far"))
    def how_far(self, job: Job) -> SafeString:
        return progress.how_far(job)

    @admin.display(description=_("schedule"))
    def of_schedule(self, job: Job) -> SafeString | str:
        if job.schedule_id is None:
            return "-"
        name = schedule_history.name_of(default_database(), job.schedule_id)
        slot = "" if job.slot is None else f", {_('slot')} {as_local(job.slot)}"
        return format_html('<a href="{}">{}</a>{}', reverse(SCHEDULE_PAGE, args=[job.schedule_id]), name, slot)

    @admin.display(description=_("task"))
    def task_name(self, job: Job) -> SafeString:
        return breakable(job.task)

    @admin.display(description=_("due"))
    def due_at(self, job: Job) -> SafeString:
        return on_two_lines(job.run_after)

    @admin.display(description=_("finished"))
    def ended_at(self, job: Job) -> SafeString | None:
        return None if job.finished_at is None else on_two_lines(job.finished_at)

    @admin.display(description=_("attempts"))
    def attempts(self, job: Job) -> str:
        return f"{job.attempt}/{job.max_attempts}"

    @admin.display(description=_("positional arguments"))
    def arguments(self, job: Job) -> SafeString | str:
        return as_json(registry.masked(job.task, job.args, job.kwargs)[0])

    @admin.display(description=_("keyword arguments"))
    def keyword_arguments(self, job: Job) -> SafeString | str:
        return as_json(registry.masked(job.task, job.args, job.kwargs)[1])

    @admin.display(description=_("result"))
    def returned(self, job: Job) -> SafeString | str:
        return "-" if job.result is None else as_json(job.result)

    @admin.display(description=_("enqueued"))
    def enqueued(self, job: Job) -> str:
        return as_local(job.created_at)

    @admin.display(description=_("due"))
    def due(self, job: Job) -> str:
        return as_local(job.run_after)

    @admin.display(description=_("last started"))
    def started(self, job: Job) -> str:
        return "-" if job.started_at is None else as_local(job.started_at)

    @admin.display(description=_("finished"))
    def finished(self, job: Job) -> str:
        return "-" if job.finished_at is None else as_local(job.finished_at)

    @admin.display(description=_("expires"))
    def expires(self, job: Job) -> str:
        return "-" if job.expires_at is None else as_local(job.expires_at)
