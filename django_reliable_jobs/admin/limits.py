"""Limits: what the code says, what an operator says instead, and who has a place now."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.contrib.admin.widgets import AdminTextInputWidget
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.read_only import BoundedPaginator, OnlyItsFilters
from django_reliable_jobs.admin.words import breakable
from django_reliable_jobs.engine import limits
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.limits import LimitStatus
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.limits import MOST, default_burst, read_value
from django_reliable_jobs.models import Limit

MOST_HOLDERS = 20


class LimitForm(forms.ModelForm):  # type: ignore[type-arg]
    """What an operator says instead of the code. Saving is left to `engine.limits`."""

    instead = forms.CharField(
        label=_("Instead of it"),
        required=False,
        max_length=40,
        widget=AdminTextInputWidget,
        help_text=_(
            "In force at once for what starts from now on; what runs ends as usual. Left empty: as the code says."
        ),
    )
    burst = forms.IntegerField(
        label=_("Burst"),
        required=False,
        min_value=1,
        max_value=MOST,
        help_text=_("Of a rate: starts at once after a rest. Left empty: one second's worth, at least one."),
    )

    class Meta:
        model = Limit
        fields: list[str] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        limit: Limit = kwargs["instance"]
        kwargs["initial"] = {"instead": (limit.override or "").split(",")[0], "burst": _unusual_burst(limit)}
        super().__init__(*args, **kwargs)
        if limit.kind != Limit.Kind.RATE:
            self.fields.pop("burst", None)
        if "instead" in self.fields:
            self.fields["instead"].help_text = f"{_forms_of(limit.kind)} {self.fields['instead'].help_text}"

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        text, burst = cleaned.get("instead", ""), cleaned.get("burst")
        try:
            cleaned["value"] = read_value(text) if text else None
        except ValueError:
            self.add_error("instead", f"{text!r}: {_forms_of(self.instance.kind)}")
            return cleaned
        if cleaned["value"] is not None and cleaned["value"].kind != self.instance.kind:
            self.add_error("instead", _forms_of(self.instance.kind))
        elif burst is not None and not text:
            self.add_error("burst", _("A burst goes with a rate: 600/m and 20."))
        return cleaned

    def _post_clean(self) -> None:
        """Leave the instance as it is in the table: what was entered is written by the engine."""


class WithStatus(ChangeList):
    """Counts what runs and waits once for all limits of a page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        found = {(each.kind, each.name): each for each in limits.statuses(default_database())}
        for limit in self.result_list:
            limit.status = found.get((limit.kind, limit.name))


@admin.register(Limit)
class LimitAdmin(OnlyItsFilters, admin.ModelAdmin):  # type: ignore[type-arg]
    form = LimitForm
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_display = ("named", "kind", "says", "instead", "running", "waiting")
    list_filter = ("kind",)
    search_fields = ("name",)
    sortable_by = ()
    ordering = ("name", "kind")
    actions = ("reset_to_code",)
    readonly_fields = ("name", "kind", "says", "declared", "running", "waiting", "holders")
    fieldsets = (
        (None, {"fields": ("name", "kind", "says", "declared", "instead", "burst")}),
        (_("Now"), {"fields": ("running", "waiting", "holders")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Limit]:
        return super().get_queryset(request).using(default_database())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return WithStatus

    def get_readonly_fields(self, request: HttpRequest, obj: Limit | None = None) -> Any:
        return self.readonly_fields if self.has_change_permission(request, obj) else (*self.readonly_fields, "instead")

    def get_fieldsets(self, request: HttpRequest, obj: Limit | None = None) -> Any:
        has_burst = obj is not None and obj.kind == Limit.Kind.RATE and self.has_change_permission(request, obj)
        said = ("name", "kind", "says", "declared", "instead", *(("burst",) if has_burst else ()))
        has_places = obj is not None and obj.kind == Limit.Kind.CONCURRENCY
        now = ("running", "waiting", "holders") if has_places else ("waiting",)
        return ((None, {"fields": said}), (_("Now"), {"fields": now}))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Let nobody: limits are declared in code."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Limit | None = None) -> bool:
        """Let only what is left over go: of what the code declares, the next worker that starts would make it again."""
        may = super().has_delete_permission(request, obj)
        return may and (obj is None or limits.is_left(default_database(), obj.kind, obj.name))

    # --- what is shown

    @admin.display(description=_("name"))
    def named(self, limit: Limit) -> SafeString:
        return breakable(limit.name)

    @admin.display(description=_("the code says"))
    def says(self, limit: Limit) -> str:
        return limit.value

    @admin.display(description=_("instead"))
    def instead(self, limit: Limit) -> str:
        return limit.override or "-"

    @admin.display(description=_("running"))
    def running(self, limit: Any) -> str:
        status = _status_of(limit)
        return "-" if status is None or status.running is None else str(status.running)

    @admin.display(description=_("waiting"))
    def waiting(self, limit: Any) -> str:
        status = _status_of(limit)
        return "-" if status is None else str(status.waiting)

    @admin.display(description=_("last declared by a worker"))
    def declared(self, limit: Limit) -> str:
        return as_local(limit.declared_at)

    @admin.display(description=_("jobs that have a place"))
    def holders(self, limit: Limit) -> SafeString | str:
        found = limits.holders(default_database(), limit.name, most=MOST_HOLDERS)
        lines = [
            (
                address(self.admin_site.name, "job_change", each.id),
                f"{each.id} {each.task}",
                "" if each.key == limit.name else f"{each.key}, ",
                _("since"),
                as_local(each.started_at),
            )
            for each in found
        ]
        return format_html_join("", '<div><a href="{}">{}</a> ({}{} {})</div>', lines) or "-"

    # --- what is changed

    def save_model(self, request: HttpRequest, obj: Limit, form: Any, change: bool) -> None:
        value, burst = form.cleaned_data["value"], form.cleaned_data.get("burst")
        if value is None:
            limits.reset(default_database(), obj.kind, obj.name)
        else:
            limits.override(default_database(), obj.kind, obj.name, value.allowed, value.period, burst)
        obj.refresh_from_db(using=default_database())

    def delete_model(self, request: HttpRequest, obj: Limit) -> None:
        limits.forget(default_database(), obj.kind, obj.name)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Limit]) -> None:
        for limit in queryset:
            self.delete_model(request, limit)

    @admin.action(description=_("Reset selected limits: as the code says"), permissions=["change"])
    def reset_to_code(self, request: HttpRequest, queryset: QuerySet[Limit]) -> None:
        changed = queryset.exclude(override_allowed=None)
        for limit in list(changed):
            limits.reset(default_database(), limit.kind, limit.name)
            self.log_change(request, limit, str(_("reset to the code: %s") % limit.value))
        number = len(changed)
        told = ngettext("%d limit is as the code says.", "%d limits are as the code says.", number) % number
        self.message_user(request, told, messages.SUCCESS)


def _status_of(limit: Any) -> LimitStatus | None:
    if not hasattr(limit, "status"):
        found = limits.statuses(default_database())
        limit.status = next((each for each in found if (each.kind, each.name) == (limit.kind, limit.name)), None)
    status: LimitStatus | None = limit.status
    return status


def _unusual_burst(limit: Limit) -> int | None:
    if limit.override_allowed is None or limit.override_period is None:
        return None
    usual = default_burst(limit.override_allowed, limit.override_period)
    return None if limit.override_burst == usual else limit.override_burst


def _forms_of(kind: str) -> str:
    if kind == Limit.Kind.RATE:
        return str(_("Starts in a second, a minute or an hour: 10/s, 600/m or 1000/h; 0/s lets none start."))
    return str(_("A whole number of jobs at once: 5; 0 lets none start."))
