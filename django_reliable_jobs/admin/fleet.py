"""The workers on the list."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.admin.read_only import ReadOnlyAdmin
from django_reliable_jobs.admin.words import queues_in_words, span_in_words, state_in_words
from django_reliable_jobs.engine import inspection
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.models import Worker


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "state", "running", "threads", "served", "started", "heartbeat")
    ordering = ("host", "pid")
    fields = (
        "host",
        "pid",
        "state",
        "running",
        "threads",
        "served",
        "started",
        "heartbeat",
        "lease_ends",
        "used_memory",
    )
    readonly_fields = ("state", "running", "served", "started", "heartbeat", "lease_ends", "used_memory")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return inspection.with_state(super().get_queryset(request))

    @admin.display(description=_("state"))
    def state(self, worker: Any) -> str:
        return state_in_words(str(worker.state))

    @admin.display(description=_("running jobs"))
    def running(self, worker: Any) -> int:
        return int(worker.running)

    @admin.display(description=_("queues"))
    def served(self, worker: Worker) -> str:
        return queues_in_words(worker.queues, worker.excluded_queues)

    @admin.display(description=_("started"))
    def started(self, worker: Worker) -> str:
        return as_local(worker.started_at)

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, worker: Any) -> str:
        return f"{as_local(worker.heartbeat_at)} ({_('%s ago') % span_in_words(worker.heartbeat_age)})"

    @admin.display(description=_("memory"))
    def used_memory(self, worker: Worker) -> str:
        return "-" if worker.memory is None else filesizeformat(worker.memory)

    @admin.display(description=_("lease ends"))
    def lease_ends(self, worker: Worker) -> str:
        return as_local(worker.expires_at)
