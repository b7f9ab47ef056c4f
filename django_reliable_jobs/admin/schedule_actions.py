"""What people do to schedules from their list, and to one from its page: pause, resume, run now, reset to the code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.engine import reconcile, schedules, slots
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.exceptions import ReliableJobsError
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.spans import parse_span


class ScheduleActions:
    """Actions of a list, and the buttons of a page that do the same to one. Each leaves a line in the history."""

    of_page = ("pause", "resume", "run_now")

    def get_urls(self: Any) -> list[URLPattern]:
        url = path(
            "<path:object_id>/act/", self.admin_site.admin_view(self.act_view), name="django_reliable_jobs_schedule_act"
        )
        urls: list[URLPattern] = [url, *super().get_urls()]  # type: ignore[misc]
        return urls

    def has_pause_permission(self: Any, request: HttpRequest) -> bool:
        """Return whether a person may pause schedules: who may change them may."""
        return bool(request.user.has_perm("django_reliable_jobs.pause_schedule") or self.has_change_permission(request))

    def act_view(self: Any, request: HttpRequest, object_id: str) -> HttpResponse:
        """Do what a button of a schedule's page says, and show the page again."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        action = request.POST.get("act", "")
        may_act = self.has_change_permission if action == "run_now" else self.has_pause_permission
        if not may_act(request):
            raise PermissionDenied
        schedule = self.get_object(request, object_id)
        if schedule is None or action not in self.of_page:
            raise Http404
        chosen = self.get_queryset(request).filter(pk=schedule.pk)
        if action == "pause":
            self._pause_for(request, chosen, request.POST.get("span", "").strip())
        else:
            getattr(self, action)(request, chosen)
        return HttpResponseRedirect(address(self.admin_site.name, "schedule_change", schedule.pk))

    @admin.action(description=_("Pause selected schedules"), permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._pause(request, queryset, None)

    @admin.action(description=_("Resume selected schedules: they go on from now"), permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        done = schedules.resume(default_database(), _ids(queryset))
        self._log(request, done, _("resumed"))
        self._tell(
            request, ngettext("%d schedule goes on from now.", "%d schedules go on from now.", len(done)) % len(done)
        )

    @admin.action(description=_("Run selected schedules now"), permissions=["change"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        for schedule in queryset:
            try:
                job = schedules.run_now(default_database(), schedule.pk)
            except ReliableJobsError as error:
                self._tell(request, f"{schedule.name}: {error}", messages.ERROR)
            else:
                self._log(request, [schedule.pk], _("run now: job %s") % job.pk)
                self._tell(request, _("%(name)s: job %(id)s was made.") % {"name": schedule.name, "id": job.pk})

    @admin.action(description=_("Reset selected schedules to the code"), permissions=["change"])
    def reset_to_code(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        for schedule in queryset:
            try:
                overridden = reconcile.overridden_fields(schedule)
                schedules.reset_to_code(default_database(), schedule.pk)
            except ReliableJobsError as error:
                self._tell(request, str(error), messages.ERROR)
            else:
                self._log(request, [schedule.pk], _("reset to the code: %s") % ", ".join(overridden))
                told = ", ".join(overridden) or str(_("nothing was overridden"))
                self._tell(request, f"{schedule.name}: {told}")

    def _pause_for(self, request: HttpRequest, queryset: QuerySet[Schedule], span: str) -> None:
        try:
            end = slots.now(default_database()) + parse_span(span) if span else None
        except (ValueError, OverflowError) as error:
            self._tell(request, str(error), messages.ERROR)
        else:
            self._pause(request, queryset, end)

    def _pause(self, request: HttpRequest, queryset: QuerySet[Schedule], end: datetime | None) -> None:
        reason = str(_("paused in the admin"))
        paused = schedules.pause(default_database(), _ids(queryset), resume_at=end, reason=reason)
        until = _(" until %s") % as_local(end) if end else ""
        self._log(request, paused, f"{_('paused')}{until}")
        told = ngettext("%d schedule is paused", "%d schedules are paused", len(paused)) % len(paused)
        self._tell(request, f"{told}{until}.")

    def _log(self: Any, request: HttpRequest, ids: Sequence[int], what: Any) -> None:
        for schedule in self.get_queryset(request).filter(pk__in=ids):
            self.log_change(request, schedule, str(what))

    def _tell(self: Any, request: HttpRequest, message: Any, level: int = messages.SUCCESS) -> None:
        self.message_user(request, str(message), level)


def _ids(queryset: QuerySet[Schedule]) -> list[int]:
    return list(queryset.values_list("pk", flat=True))
