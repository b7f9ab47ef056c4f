"""Jobs: their list, their page, and what may be done to them."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_reliable_jobs.admin import job_page
from django_reliable_jobs.admin.dead_letters import dead_letters_view
from django_reliable_jobs.admin.enqueue import enqueue_view, may_enqueue
from django_reliable_jobs.admin.job_actions import ACTIONS, JobActions
from django_reliable_jobs.admin.job_list import JobColumns
from django_reliable_jobs.admin.overview import overview_view
from django_reliable_jobs.admin.patience import OutOfPatience, patience
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job


@admin.register(Job)
class JobAdmin(JobActions, JobColumns):
    """Rows are never edited: each act is a function of the engine."""

    actions = ACTIONS

    class Media:
        css = {"all": ["django_reliable_jobs/admin.css"]}

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("overview/", wrap(overview_view), name="django_reliable_jobs_overview"),
            path("dead/", wrap(partial(dead_letters_view, self)), name="django_reliable_jobs_dead"),
            path("enqueue/", wrap(partial(enqueue_view, self)), name="django_reliable_jobs_enqueue"),
            path("<int:job_id>/live/", wrap(self.live_view), name="django_reliable_jobs_job_live"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, with the way to enqueue by hand for who may."""
        context = {"may_enqueue": may_enqueue(request), **(extra_context or {})}
        if request.method == "POST":
            acted: HttpResponse = super().changelist_view(request, context)
            return acted
        try:
            with patience(default_database()):
                response: HttpResponse = super().changelist_view(request, context)
                return response
        except OutOfPatience:
            if not request.GET:
                raise
            text = _("The search took too long and was ended. A status, a schedule or a period makes it shorter.")
            self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(request.path)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page of a job; nothing is changed here."""
        job: Job | None = self.get_object(request, object_id)
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request, job):
            raise PermissionDenied
        if job is None:
            missing: Any = self
            response: HttpResponse = missing._get_obj_does_not_exist_redirect(request, self.opts, object_id)
            return response
        context = {
            **self.admin_site.each_context(request),
            "title": str(job),
            "opts": self.opts,
            "media": self.media,
            "original": job,
            "is_live": not job.has_ended,
            "page": SafeString(job_page.page(request, self, job)),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_reliable_jobs/job/change_form.html", context)

    def live_view(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """Answer with what changes on the page of a job, for the script that shows it anew."""
        job: Job | None = self.get_queryset(request).filter(pk=job_id).first()
        if not self.has_view_permission(request, job):
            raise PermissionDenied
        if job is None:
            raise Http404
        response = HttpResponse(job_page.page(request, self, job))
        response["Cache-Control"] = "no-store"
        if job.has_ended:
            response["X-Refresh"] = "stop"
        return response
