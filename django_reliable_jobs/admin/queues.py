"""The queues in use: what waits in them, who serves them, whether they are paused."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.read_only import ReadOnlyAdmin
from django_reliable_jobs.admin.words import breakable_moment, waiting_in_words
from django_reliable_jobs.declaration import Declaration
from django_reliable_jobs.engine import inspection, queues
from django_reliable_jobs.engine.inspection import QueueStatus, as_local
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.exceptions import InvalidTask
from django_reliable_jobs.models import Queue
from django_reliable_jobs.spans import parse_span


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    """Every queue that is in use, whether or not there is a row about it; with buttons to pause and resume."""

    fields = ("name", "state", "concurrency")
    readonly_fields = ("state",)

    class Media:
        css = {"all": ["django_reliable_jobs/schedule.css", "django_reliable_jobs/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Queue]:
        return inspection.with_pause(super().get_queryset(request))

    @admin.display(description=_("state"))
    def state(self, queue: Any) -> str:
        if not queue.is_paused:
            return str(_("served"))
        return f"{_('paused since')} {as_local(queue.paused_at)}{_until(queue.resume_at)}"

    def get_urls(self) -> list[URLPattern]:
        name = "django_reliable_jobs_queue_act"
        return [path("act/", self.admin_site.admin_view(self.act_view), name=name), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the queues in use."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        using = default_database()
        context = {
            **self.admin_site.each_context(request),
            "title": _("Queues"),
            "opts": self.opts,
            "media": self.media,
            "all_name": queues.ALL,
            "pause_of_all": _pause_of(inspection.pause_of_all(using)),
            "queues": [
                {"status": each, "state": _state_of(each), "waits": _waits(each.oldest), **waiting_in_words(each)}
                for each in inspection.queues(using, most=inspection.MOST_COUNTED)
            ],
            "may_change": self.may_change(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_reliable_jobs/queue/list.html", context)

    def may_change(self, request: HttpRequest) -> bool:
        """Return whether somebody may pause queues."""
        return bool(request.user.has_perm("django_reliable_jobs.pause_queue"))

    def act_view(self, request: HttpRequest) -> HttpResponse:
        """Pause or resume a queue, or all of them, and show the list again."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.may_change(request):
            raise PermissionDenied
        using, name, span = default_database(), request.POST.get("name", ""), request.POST.get("span", "").strip()
        act = request.POST.get("act")
        if act not in ("pause", "resume") or not (name == queues.ALL or is_queue_name(name)):
            raise Http404
        try:
            until = inspection.now(using) + parse_span(span) if span and act == "pause" else None
        except (ValueError, OverflowError) as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            self._do(request, act, name, until)
        return HttpResponseRedirect(address(self.admin_site.name, "queue_changelist"))

    def _do(self, request: HttpRequest, act: str, name: str, until: datetime | None) -> None:
        """Pause or resume; tell, and leave a line in the history of the queue."""
        using, every = default_database(), name == queues.ALL
        if act == "pause":
            queues.pause(using, [name], until)
            done = str(_("All queues are paused%s.") if every else _("The queue is paused%s.")) % _until(until)
        elif queues.resume(using, [name]):
            done = str(_("The pause of all queues is over.") if every else _("The queue goes on."))
        else:
            return
        self.message_user(request, done if every else f"{name}: {done}", messages.SUCCESS)
        self.log_change(request, Queue(name=name), done)


def is_queue_name(name: str) -> bool:
    """Return whether jobs can be in a queue of this name."""
    try:
        Declaration("the queue").queue_name(name)
    except InvalidTask:
        return False
    return True


def _state_of(queue: QueueStatus) -> SafeString | str:
    if queue.paused_at is not None:
        until = (
            format_html(", {} {}", _("until"), breakable_moment(as_local(queue.resume_at))) if queue.resume_at else ""
        )
        return format_html("{} {}{}", _("paused since"), breakable_moment(as_local(queue.paused_at)), until)
    return str(_("served") if queue.workers else _("no worker serves it"))


def _waits(oldest: timedelta | None) -> str:
    return "-" if oldest is None else str(timedelta(seconds=int(oldest.total_seconds())))


def _pause_of(everything: Queue | None) -> str:
    if everything is None or everything.paused_at is None:
        return ""
    words = _("all queues are paused since")
    return f"{words} {as_local(everything.paused_at)}{_until(everything.resume_at)}"


def _until(moment: datetime | None) -> str:
    return f", {_('until')} {as_local(moment)}" if moment else ""
