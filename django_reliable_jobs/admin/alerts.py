"""Alerts to look at, and to acknowledge."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.admin.read_only import ReadOnlyAdmin
from django_reliable_jobs.admin.words import breakable_moment
from django_reliable_jobs.engine import alerts
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Alert


class OpenFilter(admin.SimpleListFilter):
    """Open ones, unless a person asks for others."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("resolved", _("resolved")), ("all", _("all"))]

    def choices(self, changelist: Any) -> Any:
        first, *others = super().choices(changelist)
        yield {**first, "display": _("open")}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Alert]) -> QuerySet[Alert]:
        match self.value():
            case "all":
                return queryset
            case "resolved":
                return queryset.filter(resolved_at__isnull=False)
        return queryset.filter(resolved_at__isnull=True)


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    list_display = ("kind", "subject", "severity", "message", "count", "since", "state")
    list_filter = (OpenFilter, "severity", "kind")
    fields = ("kind", "subject", "severity", "message", "count", "since", "changed", "told", "state")
    readonly_fields = ("since", "changed", "told", "state")
    actions = ("acknowledge",)

    class Media:
        css = {"all": ["django_reliable_jobs/admin.css"]}

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        """Return whether a person may acknowledge alerts: who has the permission to change them."""
        return bool(request.user.has_perm("django_reliable_jobs.change_alert"))

    @admin.action(
        description=_("Acknowledge selected alerts: they are not repeated any more"), permissions=["acknowledge"]
    )
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        by = request.user.get_username()
        known = alerts.acknowledge(default_database(), list(queryset.values_list("pk", flat=True)), by=by)
        text = ngettext("%d alert was acknowledged.", "%d alerts were acknowledged.", len(known)) % len(known)
        self.message_user(request, text, messages.SUCCESS if known else messages.WARNING)

    @admin.display(description=_("since"))
    def since(self, alert: Alert) -> SafeString:
        return breakable_moment(as_local(alert.opened_at))

    @admin.display(description=_("last change"))
    def changed(self, alert: Alert) -> str:
        return as_local(alert.seen_at)

    @admin.display(description=_("last told"))
    def told(self, alert: Alert) -> str:
        return as_local(alert.told_at) if alert.told_at else "-"

    @admin.display(description=_("state"))
    def state(self, alert: Alert) -> str:
        if alert.resolved_at is not None:
            return gettext("resolved %s") % as_local(alert.resolved_at)
        if alert.acknowledged_at is not None:
            moment, name = as_local(alert.acknowledged_at), alert.acknowledged_by
            return gettext("acknowledged %(moment)s by %(name)s") % {"moment": moment, "name": name}
        return gettext("open")
