"""The list of jobs: a page begins behind the id at which the last one ended, and nothing is counted.

What is rare is found by indexes; where none knows it, a page looks at so many jobs and no further.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_reliable_jobs.admin import job_filters, job_paging
from django_reliable_jobs.admin.read_only import ReadOnlyAdmin
from django_reliable_jobs.admin.words import breakable, how_many_jobs, number, on_two_lines
from django_reliable_jobs.engine import job_search
from django_reliable_jobs.engine.inspection import WIDE_COLUMNS
from django_reliable_jobs.models import Job

BEFORE = "before"
MARKS = {
    "SCHEDULED": "waiting",
    "READY": "waiting",
    "RUNNING": "running",
    "WAITING": "waiting",
    "SUCCEEDED": "well",
    "DEAD": "badly",
    "CANCELLED": "idle",
}


class JobList(ChangeList):
    """One page, by id."""

    newest_url = older_url = ""
    looks_further = leaves_out = False

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.title = _("Jobs")

    def get_filters_params(self, params: Any = None) -> Any:
        lookup = super().get_filters_params(params)
        lookup.pop(BEFORE, None)
        return lookup

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        text: str = super().get_query_string(new_params, [*(remove or []), BEFORE])
        return text

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Job]:
        self.params.pop(BEFORE, None)  # a new search begins with the newest
        return super().get_queryset(request, *args, **kwargs).defer(*WIDE_COLUMNS)

    def get_results(self, request: HttpRequest) -> None:
        below, asked = _id_of(request.GET.get(BEFORE, "")), job_filters.question(request)
        page = job_paging.page(self.queryset, asked, below=below, size=self.list_per_page)
        self.result_list, self.looks_further, self.leaves_out = page.jobs, page.is_cut, page.leaves_out
        self.older_url = "" if page.older is None else self._url(page.older)
        self.newest_url = "" if below is None else self.get_query_string()
        self._count(page.count, is_whole=not self.older_url and below is None)
        self.looked_at = number(job_paging.LOOKED_AT)
        self.show_full_result_count, self.full_result_count = False, self.result_count  # not told twice
        self.show_admin_actions, self.can_show_all, self.multi_page = True, False, False
        self.paginator = Paginator(self.result_list, self.list_per_page)

    def _count(self, known: int | None, *, is_whole: bool) -> None:
        listed = len(self.result_list)
        if known is not None or is_whole:
            self.result_count = listed if known is None else known
            self.count_in_words = how_many_jobs(self.result_count, has_more=self.leaves_out)
        else:
            estimated = max(job_search.estimate(self.queryset), listed + bool(self.older_url))
            self.result_count = estimated
            self.count_in_words = _("about %s jobs") % number(_rounded(estimated))

    def _url(self, before: int) -> str:
        base = self.get_query_string()
        return f"{base}{'' if base == '?' else '&'}{BEFORE}={before}"


class JobColumns(ReadOnlyAdmin):
    """What the list says of each job."""

    list_display = ("id", "task_name", "state", "attempts", "queue_name", "priority", "due_at", "ended_at")
    list_display_links = ("id", "task_name")
    list_filter = job_filters.FILTERS
    search_fields = ("id", "task")  # for the box; get_search_results says what it does
    search_help_text = gettext_lazy(
        "An id; a live job's unique key: order-42, or order_id=42; or the beginning or the end of a task's name:"
        " shop.tasks, or add"
    )
    ordering = ("-id",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """Search without a join, so without DISTINCT."""
        found, is_found = job_filters.search(queryset, search_term)
        request.reliable_is_found = is_found  # type: ignore[attr-defined]
        return found, False

    @admin.display(description=gettext_lazy("task"))
    def task_name(self, job: Job) -> SafeString:
        return breakable(job.task)

    @admin.display(description=gettext_lazy("status"))
    def state(self, job: Job) -> SafeString:
        return marked(job.status)

    @admin.display(description=gettext_lazy("due"))
    def due_at(self, job: Job) -> SafeString:
        return on_two_lines(job.run_after)

    @admin.display(description=gettext_lazy("finished"))
    def ended_at(self, job: Job) -> SafeString | None:
        return None if job.finished_at is None else on_two_lines(job.finished_at)

    @admin.display(description=gettext_lazy("attempts"))
    def attempts(self, job: Job) -> str:
        return f"{job.attempt}/{job.max_attempts}"


def marked(status: str) -> SafeString:
    """Return a status in words, with its sign."""
    return format_html(
        '<span class="reliable-mark reliable-mark-{}">{}</span>', MARKS[status], Job.Status(status).label
    )


def _id_of(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < job_filters.LONGEST_ID else None


def _rounded(count: int) -> int:
    """Return an estimate to two digits: more would say more than is known."""
    size = 10 ** max(len(str(count)) - 2, 0)
    return int(round(count / size) * size)
