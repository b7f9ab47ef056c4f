"""Enqueue by hand what declares `admin_enqueue=True`."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_reliable_jobs import registry
from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.enqueue_form import EnqueueForm
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.exceptions import DuplicateJob, InvalidArguments
from django_reliable_jobs.models import Job
from django_reliable_jobs.registry import Task


def may_enqueue(request: HttpRequest) -> bool:
    return bool(request.user.has_perm("django_reliable_jobs.enqueue_job"))


def offered() -> list[Task[..., Any]]:
    """Return the tasks that may be enqueued by hand."""
    return [task for task in registry.all_tasks() if task.admin_enqueue]


def enqueue_view(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Show the tasks, or the form of one; make a job of what was entered."""
    if not may_enqueue(request):
        raise PermissionDenied
    name = request.POST.get("task") or request.GET.get("task")
    if not name:
        return _shown(model_admin, request, {"names": [task.name for task in offered()]})
    task = next((each for each in offered() if each.name == name), None)
    if task is None:
        raise Http404
    form = EnqueueForm(task, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        job = _enqueue(form)
        if job is not None:
            return _told(model_admin, request, job)
    return _shown(model_admin, request, {"name": task.name, "form": form, "about": (task.__doc__ or "").strip()})


def _enqueue(form: EnqueueForm) -> Job | None:
    args, kwargs = form.arguments()
    try:
        return form.task.using(**form.choices(), database=default_database()).enqueue(*args, **kwargs)
    except (InvalidArguments, DuplicateJob) as error:
        form.add_error(None, str(error))
        return None


def _told(model_admin: Any, request: HttpRequest, job: Job) -> HttpResponse:
    if job.created:
        model_admin.log_addition(request, job, str(_("enqueued by hand")))
        model_admin.message_user(request, _("Job %s was made.") % job.pk, messages.SUCCESS)
    else:
        model_admin.message_user(
            request, _("Job %s is there already, with the same unique key.") % job.pk, messages.WARNING
        )
    if not model_admin.has_view_permission(request):
        return HttpResponseRedirect(request.get_full_path())
    return HttpResponseRedirect(address(model_admin.admin_site.name, "job_change", job.pk))


def _shown(model_admin: Any, request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Enqueue by hand"),
        "opts": model_admin.opts,
        "media": model_admin.media + context["form"].media if "form" in context else model_admin.media,
        **context,
    }
    return TemplateResponse(request, "admin/django_reliable_jobs/job/enqueue.html", context)
