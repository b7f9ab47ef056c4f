"""The acts on jobs in the admin: asked for in the list or on a job's page, confirmed, done in batches, and logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_reliable_jobs.admin import job_paging
from django_reliable_jobs.admin.addresses import address
from django_reliable_jobs.admin.job_acts import ACTS, Act, in_words
from django_reliable_jobs.admin.job_filters import LONGEST_ID, question
from django_reliable_jobs.admin.job_paging import Question
from django_reliable_jobs.admin.words import Count, number
from django_reliable_jobs.engine import inspection, job_search
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job

BATCH = 500
SHOWN = 10  # of the jobs that a question is about
MOST_CHANGED = 20_000  # by one request, which somebody waits for
MOST_LOGGED = 100  # one by one
CONFIRMED = "confirmed"
OF_PAGE = "of_page"  # asked for on the page of this job, or on that of dead letters
OF_DEAD = "dead"


def _action(act: Act) -> Callable[..., HttpResponse | None]:
    """Return an action for the list, offered to who has the act's permission."""

    def ask_or_do(model_admin: Any, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        response: HttpResponse | None = model_admin.ask_or_do(request, queryset, act)
        return response

    ask_or_do.__name__ = act.name
    return admin.action(ask_or_do, description=act.title, permissions=[act.permission])


ACTIONS = [_action(act) for act in ACTS.values()]


class JobActions:
    """Each act needs its own permission, and a second look; no act is a GET."""

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_reliable_jobs.retry_job"))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_reliable_jobs.cancel_job"))

    def has_move_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_reliable_jobs.move_job"))

    def has_remove_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_reliable_jobs.delete_job"))

    def may(self, request: HttpRequest, act: Act) -> bool:
        """Return whether this person may do it."""
        return bool(getattr(self, f"has_{act.permission}_permission")(request))

    def ask_or_do(self: Any, request: HttpRequest, jobs: QuerySet[Job], act: Act) -> HttpResponse | None:
        """Show what is about to happen; with a yes, and what was entered being right, do it."""
        is_confirmed = CONFIRMED in request.POST
        form = act.form(request.POST) if is_confirmed else act.form()
        if not is_confirmed or not form.is_valid():
            return _question(self, request, jobs, act, form)
        batches = _batches(_parts(request, jobs, act))
        counts, changed = Counter[str](), list[int]()
        try:
            for ids in batches:
                done, what = act.do(
                    default_database(), ids[: MOST_CHANGED - len(changed)], form.cleaned_data, str(request.user)
                )
                changed += done
                counts += what
        finally:  # what was done is on record, whatever came in the way of the rest
            text = in_words(act, counts)
            _log(request, act, changed, text)
        if sum(map(len, batches)) > MOST_CHANGED:
            text += " " + _("There are more: repeat it to go on.")
        self.message_user(request, text, messages.SUCCESS if changed else messages.WARNING)
        return _back(self, request)


def _question(model_admin: Any, request: HttpRequest, jobs: QuerySet[Job], act: Act, form: Any) -> HttpResponse:
    is_across = request.POST.get("select_across") == "1"
    chosen = [] if is_across else request.POST.getlist(ACTION_CHECKBOX_NAME)
    parts = _parts(request, jobs, act)
    count = sum(map(_number_of, parts)) if is_across else len(chosen)
    shown = list(chain.from_iterable(map(_newest, parts)))
    context = {
        **model_admin.admin_site.each_context(request),
        "title": act.title,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "act": act,
        "question": "" if is_across else act.question % Count(count),
        "about": ngettext(
            "All that match the list and are in a state for it: about %s job.",
            "All that match the list and are in a state for it: about %s jobs.",
            count,
        )
        % number(count)
        if is_across
        else "",
        "shown": shown[:SHOWN],
        "runs_again": act.permission == "retry" and any(each.status == Job.Status.SUCCEEDED for each in shown),
        "form": form,
        "chosen": chosen,
        "select_across": "1" if is_across else "0",
        "checkbox": ACTION_CHECKBOX_NAME,
        "of_page": request.POST.get(OF_PAGE, ""),
        "back": _address(model_admin, request),
    }
    return TemplateResponse(request, "admin/django_reliable_jobs/job/confirm.html", context)


class Part(NamedTuple):
    """Jobs to change, all of one status if all that match are meant; `found`: their ids, if they are few."""

    jobs: QuerySet[Job]
    asked: Question
    found: list[int] | None


def _parts(request: HttpRequest, jobs: QuerySet[Job], act: Act) -> list[Part]:
    """Return the jobs that were chosen, or of all that match those that the act can change: by status, as indexes are.

    Others would stand in the way: however often it is repeated, the first so many would be those that can't change.
    """
    if request.POST.get("select_across") != "1":
        return [Part(jobs, Question(is_bounded=True), None)]
    given = request.GET.get("status")
    statuses = act.statuses if given not in Job.Status.values else tuple({given} & {*act.statuses})
    parts = [(inspection.with_status(jobs, each), question(request, each)) for each in statuses]
    return [Part(of, asked, job_paging.matching(of, asked)) for of, asked in parts]


def _batches(parts: Sequence[Part]) -> list[list[int]]:
    """Return the ids in batches, one more than one request may change."""
    ids = list[int]()
    for each in parts:
        most = MOST_CHANGED + 1 - len(ids)
        ids += job_search.oldest(each.jobs, most) if each.found is None else each.found[::-1][:most]
    return [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]


def _number_of(part: Part) -> int:
    """Return how many jobs these are: counted, if they are few or an index finds them."""
    if part.found is not None:
        return len(part.found)
    counted = job_search.count_up_to(part.jobs, MOST_CHANGED) if part.asked.is_bounded else None
    return job_search.estimate(part.jobs) if counted is None else counted


def _newest(part: Part) -> QuerySet[Job]:
    jobs = part.jobs if part.found is None else part.jobs.filter(pk__in=part.found[:SHOWN])
    return jobs.order_by("-pk").only("pk", "task", "status")[:SHOWN]


def _address(model_admin: Any, request: HttpRequest) -> str:
    if request.POST.get(OF_PAGE) == OF_DEAD:
        return address(model_admin.admin_site.name, "dead")
    if job_id := _page_of(request):
        return address(model_admin.admin_site.name, "job_change", job_id)
    return request.get_full_path()


def _back(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Return to where it was asked for; to the list, if the job is gone."""
    job_id = _page_of(request)
    if job_id and not Job.objects.using(default_database()).filter(pk=job_id).exists():
        return HttpResponseRedirect(request.get_full_path())
    return HttpResponseRedirect(_address(model_admin, request))


def _filter_of(request: HttpRequest) -> str:
    """Return by what the list was narrowed, if all that match were meant."""
    is_across = request.POST.get("select_across") == "1"
    return f" ({unquote_plus(request.GET.urlencode())})" if is_across and request.GET else ""


def _page_of(request: HttpRequest) -> int | None:
    """Return the job on whose page it was asked for."""
    text = request.POST.get(OF_PAGE, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_ID else None


def _log(request: HttpRequest, act: Act, changed: Sequence[int], text: str) -> None:
    """Leave a line in the admin's log for each job, or one for many."""
    if not changed:
        return
    entry = {
        "user_id": request.user.pk,
        "content_type_id": ContentType.objects.get_for_model(Job).pk,
        "action_flag": CHANGE,
    }
    if len(changed) > MOST_LOGGED:
        many = ngettext("%s job", "%s jobs", len(changed)) % number(len(changed))
        LogEntry.objects.create(**entry, object_repr=many, change_message=f"{act.title}: {text}{_filter_of(request)}")
        return
    lines = [
        LogEntry(**entry, object_id=str(job_id), object_repr=f"#{job_id}", change_message=str(act.title))
        for job_id in changed
    ]
    LogEntry.objects.bulk_create(lines)
