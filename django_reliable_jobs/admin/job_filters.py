"""By what the list of jobs can be narrowed. The choices come from the code and from small tables, not from the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import registry
from django_reliable_jobs.admin.job_paging import Question
from django_reliable_jobs.engine import dead_letters, inspection, job_search
from django_reliable_jobs.engine.rare_jobs import Wanted
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job, Queue, Schedule, Worker

MOST_CHOICES = 100
LONGEST_ID = 19  # digits
PERIODS = {
    "1h": (timedelta(hours=1), _("the last hour")),
    "24h": (timedelta(hours=24), _("the last 24 hours")),
    "7d": (timedelta(days=7), _("the last 7 days")),
    "30d": (timedelta(days=30), _("the last 30 days")),
}


NARROWING = ("queue", "task", "worker", "error", "q", "schedule")
# Of each status, what its index knows beside it in the order of ids.
INDEXED: dict[str | None, set[str]] = {None: set(), "DEAD": {"task"}, "CANCELLED": set()}


class _Chosen(admin.SimpleListFilter):
    """What was asked for is among the choices, whether or not it is known here."""

    template = "admin/django_reliable_jobs/job/filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        choices = list(self.known())[:MOST_CHOICES]
        asked = request.GET.get(str(self.parameter_name))
        if asked and asked not in dict(choices):
            choices.append((asked, self.name_of(asked)))
        return choices

    def has_output(self) -> bool:
        return bool(self.lookup_choices)

    def known(self) -> Iterator[tuple[str, Any]]:
        return iter(())

    def name_of(self, value: str) -> str:
        return value


class StatusFilter(admin.SimpleListFilter):
    """Each status in the words that its index knows."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return Job.Status.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        status = self.value()
        return inspection.with_status(queryset, status) if status in Job.Status.values else queryset


class PeriodFilter(admin.SimpleListFilter):
    """By the moment of enqueueing, found by the ids."""

    title = _("time of enqueueing")
    parameter_name = "period"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, label) for name, (_span, label) in PERIODS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        if self.value() not in PERIODS:
            return queryset
        using = default_database()
        moment = inspection.now(using) - PERIODS[str(self.value())][0]
        first = job_search.first_since(using, moment)
        request.reliable_first = first  # type: ignore[attr-defined]
        return queryset.filter(pk__gte=first, created_at__gte=moment)


class QueueFilter(_Chosen):
    """Queues that a task or an operator names."""

    title = _("queue")
    parameter_name = "queue"

    def known(self) -> Iterator[tuple[str, Any]]:
        names = {task.queue_name for task in registry.all_tasks()}
        names |= set(
            Queue.objects.using(default_database()).exclude(name="*").values_list("name", flat=True)[:MOST_CHOICES]
        )
        return ((name, name) for name in sorted(names))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return queryset.filter(queue_name=self.value()) if self.value() else queryset


class ScheduleFilter(_Chosen):
    title = _("schedule")
    parameter_name = "schedule"

    def known(self) -> Iterator[tuple[str, Any]]:
        rows = Schedule.objects.using(default_database()).order_by("name").values_list("pk", "name")
        return ((str(pk), name) for pk, name in rows[:MOST_CHOICES])

    def name_of(self, value: str) -> str:
        return f"#{value}"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        value = self.value()
        if not value:
            return queryset
        if not _is_id(value):
            return queryset.none()
        # In the words that the index of a schedule's jobs knows.
        return queryset.filter(schedule_id__isnull=False, schedule_id=int(value))


class WorkerFilter(_Chosen):
    """What a worker runs; with a period, also what it had run last of what has ended."""

    title = _("worker (with a period, what has ended too)")
    parameter_name = "worker"

    def known(self) -> Iterator[tuple[str, Any]]:
        rows = Worker.objects.using(default_database()).order_by("host", "pid")[:MOST_CHOICES]
        return ((str(row.pk), str(row)) for row in rows)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        value = self.value()
        if not value:
            return queryset
        if not _is_id(value.removeprefix("-")):
            return queryset.none()
        found = queryset.filter(worker_id=int(value))
        return found if request.GET.get("period") in PERIODS else found.filter(status=Job.Status.RUNNING)


class TaskFilter(_Chosen):
    title = _("task")
    parameter_name = "task"

    def known(self) -> Iterator[tuple[str, Any]]:
        return ((task.name, task.name) for task in registry.all_tasks())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return queryset.filter(task=self.value()) if self.value() else queryset


class ErrorFilter(_Chosen):
    """What dead letters died of; offered by their page, and shown when asked for."""

    title = _("error")
    parameter_name = "error"

    def name_of(self, value: str) -> str:
        return str(_("none")) if value == dead_letters.NO_ERROR else value

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return dead_letters.died_of(queryset, str(self.value())) if self.value() else queryset


FILTERS = (StatusFilter, PeriodFilter, QueueFilter, ScheduleFilter, WorkerFilter, TaskFilter, ErrorFilter)


def search(jobs: QuerySet[Job], text: str) -> tuple[QuerySet[Job], bool]:
    """Return the job of an id, the live ones of a unique key, or those of tasks by the beginning or the last parts of
    their name; and whether an index has found them.
    """
    term = text.strip()
    if not term:
        return jobs, False
    if term.isascii() and term.isdigit() and len(term) <= LONGEST_ID:
        return jobs.filter(pk=int(term)), True
    if found := job_search.live_by_key(default_database(), term):
        return jobs.filter(pk__in=found), True
    return jobs.filter(Q(task__startswith=term) | Q(task__endswith=f".{term}")), False


def question(request: HttpRequest, status: str | None = None) -> Question:
    """Return what was asked for, in the words of what finds it; narrowed to `status`, whatever status was asked for."""
    asked = {name: text for name in NARROWING if (text := request.GET.get(name, "").strip())}
    given = request.GET.get("status")
    status = status or (given if given in Job.Status.values else None)
    wanted = Wanted(
        status=status,
        task=asked.get("task"),
        part=asked.get("q"),
        queue_name=asked.get("queue"),
    )
    first = getattr(request, "reliable_first", 0)
    has_period, is_found = request.GET.get("period") in PERIODS, getattr(request, "reliable_is_found", False)
    if is_found or ("worker" in asked and not has_period):
        return Question(is_bounded=True)
    narrower = {"worker", "error"} & set(asked)
    if "schedule" in asked:
        if not _is_id(asked["schedule"]):
            return Question(is_bounded=True)
        wanted, narrower = Wanted(status=wanted.status, schedule_id=int(asked["schedule"])), set(asked) - {"schedule"}
    return Question(
        wanted=None if wanted == Wanted() else wanted,
        is_narrower=has_period or bool(narrower),
        is_bounded=status in INDEXED and set(asked) <= INDEXED[status],
        first=first,
    )


def _is_id(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= LONGEST_ID and int(value) < 2**63
